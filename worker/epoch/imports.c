/* SPDX-License-Identifier: Apache-2.0
 *
 * imports.c -- memory of a peer that this worker writes: by the number that the peer gave each region. Where the endpoint was kept,
 * what was imported by it is there, and what has changed since is imported now.
 */
#include "worker/epoch/epoch.h"

#include "base/memory.h"

static struct import *find(const struct peer *peer, uint32_t region)
{
	for (size_t i = 0; i < peer->import_count; i++)
		if (peer->imports[i].region == region)
			return &peer->imports[i];
	return NULL;
}

struct transport_remote *peer_remote(const struct peer *peer, uint32_t region)
{
	const struct import *import = find(peer, region);

	return import ? import->remote : NULL;
}

void *peer_device_pointer(const struct peer *peer, uint32_t region)
{
	const struct import *import = find(peer, region);
	void *pointer = import ? transport_remote_device_pointer(import->remote) : NULL;

	return pointer || !import ? pointer : import->pinned;
}

void import_close(const struct device *device, struct import *import)
{
	if (import->pinned)
		device_unpin(device, import->pinned);
	transport_remote_close(&import->remote);
	*import = (struct import){0};
}

/* What a peer has on the host and is mapped here: kernels store into pinned memory. */
static int pin_mapped(const struct device *device, const struct peer *peer, struct import *import,
		      struct error *error)
{
	void *memory = transport_remote_pointer(import->remote);
	int rc;

	if (!device || !memory || !peer->written || import->pinned)
		return 0;
	rc = device_pin(device, memory, transport_remote_bytes(import->remote), error);
	if (!rc)
		import->pinned = memory;
	return rc;
}

/* Parameters that no transport of ours writes lie in regions that it may not know. */
static bool is_written(const struct peer *peer, uint32_t region)
{
	const struct peer_endpoints *theirs = peer->theirs;

	for (size_t i = 0; i < theirs->place_count && !peer->written; i++)
		if (theirs->places[i].region == region)
			return false;
	return true;
}

static bool is_there(const struct peer_endpoints *theirs, uint32_t region)
{
	size_t i = 0;

	while (i < theirs->region_count && theirs->regions[i].region != region)
		i++;
	return i < theirs->region_count;
}

/* Room for all that is to come; what the peer has closed goes. */
static int prepare(const struct device *device, struct peer *peer, struct error *error)
{
	size_t room = peer->theirs->region_count;
	struct import *imports = memory_zalloc(room, sizeof(*imports));
	size_t kept = 0;

	if (!imports)
		return memory_error(error, "importing regions", room * sizeof(*imports));
	for (size_t i = 0; i < peer->import_count; i++) {
		if (is_there(peer->theirs, peer->imports[i].region))
			imports[kept++] = peer->imports[i];
		else
			import_close(device, &peer->imports[i]);
	}
	memory_free(peer->imports);
	peer->imports = imports;
	peer->import_count = kept;
	return 0;
}

int peer_import(const struct device *device, struct peer *peer, struct error *error)
{
	int rc = prepare(device, peer, error);

	for (size_t r = 0; !rc && r < peer->theirs->region_count; r++) {
		const struct region_record *region = &peer->theirs->regions[r];
		struct import *import = find(peer, region->region);

		if (!is_written(peer, region->region))
			continue;
		if (!import) {
			import = &peer->imports[peer->import_count];
			import->region = region->region;
			rc = transport_remote_import(peer->endpoint, region->bytes, region->length,
						     &import->remote, error);
			peer->import_count += !rc;
		}
		if (!rc)
			rc = pin_mapped(device, peer, import, error);
	}
	return rc ? error_wrap(error, "memory of %s", peer->name), rc : 0;
}
