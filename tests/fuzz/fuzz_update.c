/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_update.c -- any signal: a payload of an update that is right for the pair, or a named error
 * and nothing taken over. Bytes are tag, length and payload, as much as there is of each.
 */
#include "worker/update/update_payload.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct update_pair pair = {"peer", {1, 2}, 5, 2};

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void must_refuse(int rc, const struct error *error)
{
	must(rc == -ERROR_MESSAGE && strstr(error->text, pair.name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct update_accept accept = {0}, no_accept = {0};
	struct update_abort gone = {0}, no_gone = {0};
	struct update_end end = {0}, no_end = {0};
	struct update_landed landed = {0}, no_landed = {0};
	struct update_taken taken = {0}, no_taken = {0};
	struct transport_signal signal = {0};
	struct error error = {0};
	enum update_tag tag;
	int rc;

	if (size < 8)
		return 0;
	memcpy(&signal.tag, data, 4);
	memcpy(&signal.length, data + 4, 4);
	size = size - 8 < sizeof(signal.payload) ? size - 8 : sizeof(signal.payload);
	memcpy(signal.payload, data + 8, size);
	rc = update_read_accept(&signal, &pair, &accept, &error);
	if (rc) {
		must_refuse(rc, &error);
		must(memcmp(&accept, &no_accept, sizeof(accept)) == 0);
	} else {
		must(accept.opening >= pair.opening && accept.copy < pair.copies);
		must(accept.min_version && accept.min_version <= accept.max_version);
		must(accept.window_offset + accept.window_bytes >= accept.window_offset);
	}
	rc = update_read_taken(&signal, &pair, &taken, &error);
	if (rc) {
		must_refuse(rc, &error);
		must(memcmp(&taken, &no_taken, sizeof(taken)) == 0);
	} else {
		must(taken.opening == pair.opening);
	}
	for (int decides = 0; decides < 2; decides++) {
		struct update_meet meet = {.tag = 0};

		rc = update_read_meet(&signal, pair.name, decides, &meet, &error);
		if (rc) {
			must_refuse(rc, &error);
			must(meet.tag == 0);
		} else {
			must(meet.tag == UPDATE_GIVE_UP ||
			     (meet.tag == UPDATE_ARRIVE || meet.tag == UPDATE_LATER) == !decides);
			must(!meet.arrive.turn ||
			     meet.arrive.min_version <= meet.arrive.max_version);
			must(!meet.give_up.turn ||
			     memchr(meet.give_up.why, 0, sizeof(meet.give_up.why)));
		}
	}
	rc = update_read_use(&signal, &pair, &tag, &end, &gone, &landed, &error);
	if (rc) {
		must_refuse(rc, &error);
		must(memcmp(&end, &no_end, sizeof(end)) == 0);
		must(memcmp(&gone, &no_gone, sizeof(gone)) == 0);
		must(memcmp(&landed, &no_landed, sizeof(landed)) == 0);
	} else if (tag == UPDATE_LANDED) {
		must(landed.opening == pair.opening);
	} else if (tag == UPDATE_END) {
		must(end.opening == pair.opening && end.version);
		must(!end.sums || end.sums == end.pieces);
	} else {
		must(tag == UPDATE_ABORT && gone.opening == pair.opening && gone.version);
		must(strlen(gone.why) < sizeof(gone.why));
	}
	return 0;
}
