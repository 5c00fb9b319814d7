/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over real queue pairs. Without an RDMA device it is skipped, with the reason
 * (tests/vm/run has two soft ones). Allocated memory is written over all NICs there are; the
 * registered one only from the first to the second, so that packets pass the cable and not a
 * shortcut inside a device.
 */
#include "tests/support/conformance.h"

#include "transport/verbs/verbs.h"
#include <stdio.h>
#include <stdlib.h>

#define SKIPPED 77

int main(void)
{
	struct verbs_settings settings;
	const struct verbs_options quick = {.settings = &settings};
	const struct verbs_options far = {.settings = &settings, .no_identity = true};
	const struct conformance subjects[] = {
		{.name = "verbs",
		 .provider = "verbs",
		 .options = &quick,
		 .processes = true,
		 .proves = true,
		 .lost_ms = 20000},
		{.name = "verbs, registered memory, as between hosts",
		 .provider = "verbs",
		 .options = &far,
		 .registered = true,
		 .processes = true,
		 .proves = true,
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
	for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
		failed += conformance_run(&subjects[i]);
	return failed;
}
