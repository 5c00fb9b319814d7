/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as a hostile peer would send them. Raw first; then signed again, since a forger can
 * compute the checksum and the decoders behind it must stand alone. What is accepted must
 * encode to the same bytes.
 */
#include "common/digest.h"
#include "transport/shm/shm.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const unsigned char *data, size_t size)
{
	unsigned char again[TRANSPORT_RECORD_BYTES];
	struct shm_endpoint_record endpoint;
	struct shm_region_record region;
	struct record_reader reader;
	struct record_writer writer;
	struct record_head head;
	struct error error;
	size_t length;
	int rc;

	if (record_open(&reader, data, size, &head, &error))
		return;
	rc = head.kind == RECORD_REGION
		     ? shm_region_record_get(&reader, head.bytes, &region, &error)
		     : shm_endpoint_record_get(&reader, &endpoint, &error);
	if (rc)
		return;
	record_begin(&writer, again, sizeof(again), &head);
	if (head.kind == RECORD_REGION)
		shm_region_record_put(&writer, &region);
	else
		shm_endpoint_record_put(&writer, &endpoint);
	if (record_finish(&writer, &length, &error) || length != size ||
	    memcmp(again, data, size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char copy[TRANSPORT_RECORD_BYTES];
	uint64_t sum;

	if (size > sizeof(copy))
		return 0;
	decode(data, size);
	if (size < RECORD_HEAD_BYTES + RECORD_TAIL_BYTES)
		return 0;
	memcpy(copy, data, size);
	copy[8] = (unsigned char)size;
	copy[9] = (unsigned char)(size >> 8);
	copy[10] = copy[11] = 0;
	sum = checksum64(copy, size - RECORD_TAIL_BYTES);
	for (int i = 0; i < 8; i++)
		copy[size - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
	decode(copy, size);
	return 0;
}
