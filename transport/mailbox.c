/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mailbox.h"

#include "base/clock.h"
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAYLOAD_WORDS (TRANSPORT_PAYLOAD_BYTES / 8)

void mailbox_clear(struct mailbox_slot *slot)
{
	atomic_store(&slot->latest, 0);
	atomic_store(&slot->bank[0].sequence, 0);
	atomic_store(&slot->bank[1].sequence, 0);
}

/* The release on each word keeps it behind the bank's sequence 0, and the next sequence
 * behind each word: no fence is needed, which thread checkers could not follow. */
void mailbox_store(struct mailbox_slot *slot, const struct transport_signal *signal)
{
	struct mailbox_bank *bank = &slot->bank[signal->sequence & 1];
	uint64_t words[PAYLOAD_WORDS];

	memcpy(words, signal->payload, sizeof(words));
	atomic_store_explicit(&bank->sequence, 0, memory_order_relaxed);
	atomic_store_explicit(&bank->head, signal->tag | (uint64_t)signal->length << 32,
			      memory_order_release);
	for (int i = 0; i < PAYLOAD_WORDS; i++)
		atomic_store_explicit(&bank->payload[i], words[i], memory_order_release);
	atomic_store_explicit(&bank->sequence, signal->sequence, memory_order_release);
	atomic_store_explicit(&slot->latest, signal->sequence, memory_order_release);
}

static bool load_bank(struct mailbox_bank *bank, uint64_t sequence, struct transport_signal *signal)
{
	uint64_t words[PAYLOAD_WORDS], head;

	if (atomic_load_explicit(&bank->sequence, memory_order_acquire) != sequence)
		return false;
	head = atomic_load_explicit(&bank->head, memory_order_acquire);
	for (int i = 0; i < PAYLOAD_WORDS; i++)
		words[i] = atomic_load_explicit(&bank->payload[i], memory_order_acquire);
	if (atomic_load_explicit(&bank->sequence, memory_order_relaxed) != sequence)
		return false;
	signal->tag = (uint32_t)head;
	signal->length = (uint32_t)(head >> 32);
	signal->sequence = sequence;
	memcpy(signal->payload, words, sizeof(words));
	/* the slot is writable by a peer: its length is not to be trusted */
	if (signal->length > TRANSPORT_PAYLOAD_BYTES)
		signal->length = TRANSPORT_PAYLOAD_BYTES;
	return true;
}

int mailbox_load(struct mailbox_slot *slot, struct transport_signal *signal)
{
	uint64_t last = 0;

	for (int same = 0; same < 1000;) {
		uint64_t latest = atomic_load_explicit(&slot->latest, memory_order_acquire);

		if (!latest)
			return 1;
		if (load_bank(&slot->bank[latest & 1], latest, signal))
			return 0;
		/* latest must move when its bank does; if not, the slot was overwritten
		 * with garbage and no signal is the honest answer */
		same = latest == last ? same + 1 : 0;
		last = latest;
	}
	return 1;
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Until *word is not `value`, a wake, or the deadline; early returns are fine. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
	struct timespec at = {(time_t)(deadline_ns / 1000000000u),
			      (long)(deadline_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, deadline_ns > INT64_MAX ? NULL : &at,
		NULL, FUTEX_BITSET_MATCH_ANY);
}

void doorbell_wake(struct doorbell *doorbell)
{
	atomic_fetch_add(&doorbell->bell, 1);
	futex_wake(&doorbell->bell);
}

void doorbell_ring(struct doorbell *doorbell)
{
	atomic_fetch_add(&doorbell->count, 1);
	atomic_fetch_add(&doorbell->bell, 1);
	if (atomic_load(&doorbell->waiters))
		futex_wake(&doorbell->bell);
}

uint64_t doorbell_wait(struct doorbell *doorbell, uint64_t seen, uint64_t deadline_ns,
		       _Atomic uint32_t *interrupt)
{
	uint64_t count = atomic_load(&doorbell->count);

	if (count != seen || clock_ns() >= deadline_ns)
		return count;
	atomic_fetch_add(&doorbell->waiters, 1);
	for (;;) {
		uint32_t bell = atomic_load(&doorbell->bell);

		count = atomic_load(&doorbell->count);
		if (count != seen || atomic_exchange(interrupt, 0))
			break;
		if (clock_ns() >= deadline_ns)
			break;
		futex_wait(&doorbell->bell, bell, deadline_ns);
	}
	atomic_fetch_sub(&doorbell->waiters, 1);
	return count;
}
