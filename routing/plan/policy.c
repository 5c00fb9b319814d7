/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/policy.h"

#include "base/text.h"
#include <string.h>

static const struct policy policies[] = {
	{"greedy",
	 "each pair goes to the holder with the fewest bytes so far, the lowest rank on a tie",
	 .assign = greedy_assign, .keeps = KEEPS_UNITS},
	{"round-robin",
	 "each inference rank goes to one holder in turn, keeping equal engine ranks together",
	 .assign = round_robin_assign},
	{"round-robin-affinity",
	 "as round-robin, but inference ranks with equal layouts are kept together, not engine ranks",
	 .assign = round_robin_affinity_assign},
	{"prefix",
	 "the tensor list is cut in order into at most 8 equal pieces, one holder each; others idle",
	 .assign = prefix_assign},
	{"first-holder", "each pair goes to its lowest holder", .assign = first_holder_assign},
	{"modulo", "inference rank r goes to holder number r % holders", .assign = modulo_assign},
	{"hash", "each tensor goes to holder number crc32(name) % holders", .assign = hash_assign},
	{"lpt", "as greedy, but the largest pairs are decided first", .assign = lpt_assign,
	 .keeps = KEEPS_UNITS},
	{"balanced",
	 "what ranks want alike is one share, sent by one trainer; shares are laid side by side and cut "
	 "at rows where each trainer's part of the best possible plan ends",
	 .assign = balanced_assign, .limits_sessions = true, .keeps = KEEPS_PARTS},
};

const struct policy *policy_find(const char *name)
{
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		if (strcmp(policies[i].name, name) == 0)
			return &policies[i];
	return NULL;
}

const struct policy *policy_list(size_t *count)
{
	*count = sizeof(policies) / sizeof(policies[0]);
	return policies;
}

int policy_named(const struct policy **policy, const char *flag, const char *name,
		 struct error *error)
{
	struct text known = {0};
	int rc;

	*policy = policy_find(name);
	if (*policy)
		return 0;
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
		text_format(&known, "%s%s", i ? ", " : "", policies[i].name);
	rc = error_set(error, ERROR_USAGE, "%s %s is not known; these are: %s", flag, name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}
