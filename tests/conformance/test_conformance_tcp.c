/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over TCP on this host's loopback: as chosen by default, and as between two hosts, with
 * memory of the caller's and one stream.
 */
#include "tests/support/conformance.h"

#include "transport/ofi/ofi.h"

#define MANY .sessions = 200 /* each opens listeners, connections and threads */

/* The rails' threads hold these while they read. */
static void hold(struct transport_domain *domain, bool held)
{
	struct ofi_domain *ofi = domain->state;

	ofi_each_rail(rail, ofi) {
		if (held)
			pthread_mutex_lock(&rail->lock);
		else
			pthread_mutex_unlock(&rail->lock);
	}
}

int main(void)
{
	const struct ofi_settings two = {.nics = "lo",
					 .nics_from = "the test",
					 .streams = 2,
					 .depth = 4,
					 .chunk_bytes = 65536};
	const struct ofi_settings one = {.nics = "lo",
					 .nics_from = "the test",
					 .streams = 1,
					 .depth = 2,
					 .chunk_bytes = 4096};
	const struct ofi_options here = {.settings = &two};
	const struct ofi_options far = {.settings = &one, .no_identity = true};
	const struct conformance subjects[] = {
		{.name = "tcp",
		 .provider = "tcp",
		 .options = &here,
		 .processes = true,
		 .hold = hold,
		 .probes = true,
		 MANY},
		{.name = "tcp, registered memory, as between hosts",
		 .provider = "tcp",
		 .options = &far,
		 .registered = true,
		 .processes = true,
		 .hold = hold,
		 .probes = true,
		 .blind = true,
		 MANY},
	};
	int failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
		failed += conformance_run(&subjects[i]);
	return failed;
}
