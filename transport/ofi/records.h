/* SPDX-License-Identifier: Apache-2.0
 *
 * records.h -- bodies of the records of "tcp" and "efa": what a peer must know to write here. Pure.
 *
 *   endpoint   who (process, domain nonce) | cookie | data | rail 0: name, addresses, probe key | ...
 *   region     who (process, domain nonce) | rail 0: key, base | rail 1 ...
 *
 * Cookie and keys open memory: no log line and no error shows them.
 */
#ifndef TRANSPORT_OFI_RECORDS_H
#define TRANSPORT_OFI_RECORDS_H

#include "transport/identity.h"
#include "transport/record.h"

#define OFI_RAILS_MAX         16
#define OFI_ADDRESSES_MAX     2  /* of one rail: IPv4 and IPv6 */
#define OFI_ADDRESS_BYTES     48
#define OFI_COOKIE_BYTES      16
#define OFI_RAIL_NAME_BYTES   32 /* "eth0", "rdmap200s31-rdm" */

/* As libfabric's provider has it; an address of IP as ip.h writes it. */
struct ofi_address {
	uint32_t length;
	unsigned char bytes[OFI_ADDRESS_BYTES];
};

struct ofi_rail_record {
	char name[OFI_RAIL_NAME_BYTES]; /* for messages */
	uint64_t probe_key, probe_base; /* OFI_PROBE_BYTES that anybody of the job may overwrite */
	uint32_t address_count;
	struct ofi_address addresses[OFI_ADDRESSES_MAX];
};

struct ofi_endpoint_record {
	struct identity identity;
	uint64_t nonce;              /* of the domain */
	unsigned char cookie[OFI_COOKIE_BYTES];
	uint32_t data;               /* remote completion data of lane 0; the lane is added */
	uint32_t rail_count;
	struct ofi_rail_record rails[OFI_RAILS_MAX];
};

struct ofi_key { uint64_t key, base; };

struct ofi_region_record {
	struct identity identity;
	uint64_t nonce;
	uint32_t rail_count;
	struct ofi_key keys[OFI_RAILS_MAX];
};

void ofi_endpoint_record_put(struct record_writer *writer, const struct ofi_endpoint_record *record);
/* ERROR_MESSAGE names the field, the value seen and the range. */
int ofi_endpoint_record_get(struct record_reader *reader, struct ofi_endpoint_record *record,
			    struct error *error);
void ofi_region_record_put(struct record_writer *writer, const struct ofi_region_record *record);
int ofi_region_record_get(struct record_reader *reader, struct ofi_region_record *record,
			  struct error *error);

#endif
