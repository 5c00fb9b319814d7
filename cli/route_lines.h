/* SPDX-License-Identifier: Apache-2.0
 *
 * route_lines.h -- the routes of a dump gathered by one of their ends, route by route, so that a
 * dump of any size is shown in little memory.
 */
#ifndef CLI_ROUTE_LINES_H
#define CLI_ROUTE_LINES_H

#include "base/array.h"
#include "routing/report/dump_read.h"

enum view_by {
	BY_NOTHING,
	BY_TRAINER,
	BY_INFERENCE,
	BY_TENSOR,
	BY_HOST,
	BY_NIC,
	BY_TRANSPORT,
	BY_COUNT
};

extern const char *const view_by_names[BY_COUNT];

struct line {
	uint32_t key;   /* rank; index of a name, host, NIC or transport */
	uint32_t peers; /* distinct ranks on the other side (trainers for a tensor); of a host: its
			   ranks; of a transport: pairs */
	uint64_t routes;
	uint64_t sent, received; /* of hosts and NICs */
	uint64_t bytes;          /* what lines are sorted by: of hosts and NICs the larger
				    direction, since a NIC sends and receives at once */
};

struct lines {
	ARRAY(struct line) items; /* largest first, lowest key on a tie */
	ARRAY(uint64_t) ends;     /* (key, peer), each once after lines_compact */
	size_t ends_sorted;
	uint64_t *trainer_bytes, *inference_bytes; /* by rank */
	enum view_by view;
};

/* Reads the file and gathers. *dump has all but the routes; the topology is needed for hosts
 * and NICs, a list of transports for these (ERROR_USAGE says how to get one). The caller frees both, on errors too. */
int lines_open(struct lines *lines, struct dump **dump, const char *path, enum view_by view,
	       struct error *error);
void lines_fini(struct lines *lines);

#endif
