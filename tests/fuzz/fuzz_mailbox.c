/* SPDX-License-Identifier: Apache-2.0
 *
 * A letter is memory that a peer writes: whatever stands in it, a load ends, and what it gives
 * is within bounds and can be stored and loaded again.
 */
#include "transport/mailbox.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct transport_signal signal, again;
	struct mailbox_letter letter;

	mailbox_clear(&letter);
	memcpy((void *)&letter, data, size < sizeof(letter) ? size : sizeof(letter));
	if (mailbox_load(&letter, &signal))
		return 0;
	if (signal.length > sizeof(signal.payload) || signal.sequence == 0)
		abort();
	mailbox_clear(&letter);
	mailbox_store(&letter, &signal);
	if (mailbox_load(&letter, &again) || again.word != signal.word ||
	    again.length != signal.length || again.sequence != signal.sequence ||
	    memcmp(again.payload, signal.payload, signal.length) != 0)
		abort();
	return 0;
}
