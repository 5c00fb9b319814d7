/* SPDX-License-Identifier: Apache-2.0 */
#include "job/member.h"

#include <stdio.h>

static const char *const roles[] = {[ROLE_TRAINER] = "trainer", [ROLE_INFERENCE] = "inference"};
static const char *const paths[] = {[PATH_DIRECT] = "direct",
				    [PATH_MAPPED] = "mapped",
				    [PATH_REPLICA] = "replica",
				    [PATH_LANDED] = "landed"};

_Static_assert(sizeof(roles) / sizeof(roles[0]) == ROLE_COUNT, "a name for every role");
_Static_assert(sizeof(paths) / sizeof(paths[0]) == PATH_COUNT, "a name for every path");

const char *role_name(enum role role)
{
	return (unsigned)role < ROLE_COUNT ? roles[role] : "unknown role";
}

const char *route_path_name(enum route_path path)
{
	return (unsigned)path < PATH_COUNT ? paths[path] : "unknown path";
}

char *member_text(struct member member, char out[MEMBER_TEXT_BYTES])
{
	snprintf(out, MEMBER_TEXT_BYTES, "%s %u", role_name(member.role), member.rank);
	return out;
}
