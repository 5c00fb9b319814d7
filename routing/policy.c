/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/policy.h"

#include <string.h>

static const struct policy policies[] = {
	{"greedy",
	 "each pair goes to the holder with the fewest bytes so far, the lowest rank on a tie",
	 greedy_assign},
	{"round-robin",
	 "each inference rank goes to one holder in turn, keeping equal engine ranks together",
	 round_robin_assign},
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
