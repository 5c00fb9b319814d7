/* SPDX-License-Identifier: Apache-2.0
 *
 * A slot is memory that a peer writes: whatever stands in it, a load ends, and what it gives
 * is within bounds and can be stored and loaded again.
 */
#include "transport/mailbox.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct transport_signal signal, again;
	struct mailbox_slot slot;

	mailbox_clear(&slot);
	memcpy((void *)&slot, data, size < sizeof(slot) ? size : sizeof(slot));
	if (mailbox_load(&slot, &signal))
		return 0;
	if (signal.length > sizeof(signal.payload) || signal.sequence == 0)
		abort();
	mailbox_clear(&slot);
	mailbox_store(&slot, &signal);
	if (mailbox_load(&slot, &again) || again.tag != signal.tag ||
	    again.length != signal.length || again.sequence != signal.sequence ||
	    memcmp(again.payload, signal.payload, signal.length) != 0)
		abort();
	return 0;
}
