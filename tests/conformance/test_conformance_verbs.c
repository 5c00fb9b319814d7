/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over real queue pairs. Without an RDMA device it is skipped, with the reason
 * (tests/vm/run has two soft ones). Once over all NICs there are; once with one NIC a rank, so that
 * packets pass the cable between two and do not take a shortcut inside one.
 */
#include "tests/support/conformance.h"

#include "transport/verbs/verbs.h"
#include <stdio.h>
#include <stdlib.h>

#define SKIPPED 77

/* Trainer 3 and inference rank 5 are the suite's pair. */
static int map_ranks(struct verbs_settings *settings, struct error *error)
{
	struct verbs_facts facts = {0};
	int rc = verbs_facts_read(verbs_calls_system(), &facts, error);

	if (!rc && facts.devices.count >= 2) {
		const char *a = facts.devices.items[0].name, *b = facts.devices.items[1].name;

		snprintf(settings->nics, sizeof(settings->nics),
			 "0=%.32s,1=%.32s,2=%.32s,3=%.32s,5=%.32s,6=%.32s", a, b, a, a, b, b);
		settings->nics_from = "the test";
	}
	verbs_facts_free(&facts);
	return rc;
}

int main(void)
{
	struct verbs_settings settings, mapped;
	const struct verbs_options quick = {.settings = &settings};
	const struct verbs_options far = {.settings = &mapped, .no_identity = true};
	const struct conformance subjects[] = {
		{.name = "verbs",
		 .provider = "verbs",
		 .options = &quick,
		 .processes = true,
		 .probes = true,
		 .lost_ms = 20000},
		{.name = "verbs, registered memory, as between hosts",
		 .provider = "verbs",
		 .options = &far,
		 .registered = true,
		 .processes = true,
		 .probes = true,
		 .blind = true,
		 .lost_ms = 20000},
	};
	const struct transport_options options = {.secret = 1};
	struct transport_domain *domain = NULL;
	struct error error = {0};
	int failed = 0;

	if (transport_domain_open(&domain, "verbs", &options, &error)) {
		printf("skipped: %s\n", error.text);
		return error.code == ERROR_UNSUPPORTED ? SKIPPED : 1;
	}
	transport_domain_close(&domain);
	if (verbs_settings_read(&settings, "", getenv, &error)) {
		printf("%s\n", error.text);
		return 1;
	}
	settings.timeout = 14; /* a lost peer is known in half a second */
	mapped = settings;
	if (map_ranks(&mapped, &error)) {
		printf("%s\n", error.text);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
		failed += conformance_run(&subjects[i]);
	return failed;
}
