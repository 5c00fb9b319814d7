/* SPDX-License-Identifier: Apache-2.0 */
#include "job/member.h"

#include <stdio.h>

static const char *const roles[] = {[ROLE_TRAINER] = "trainer", [ROLE_INFERENCE] = "inference"};
static const char *const hows[] = {
	[HOW_DIRECT] = "direct", [HOW_MAPPED] = "mapped", [HOW_REPLICA] = "replica"};

_Static_assert(sizeof(roles) / sizeof(roles[0]) == ROLE_COUNT, "a name for every role");
_Static_assert(sizeof(hows) / sizeof(hows[0]) == HOW_COUNT, "a name for every way");

const char *role_name(enum role role)
{
	return (unsigned)role < ROLE_COUNT ? roles[role] : "unknown role";
}

const char *route_how_name(enum route_how how)
{
	return (unsigned)how < HOW_COUNT ? hows[how] : "unknown way";
}

char *member_text(struct member member, char out[MEMBER_TEXT_BYTES])
{
	snprintf(out, MEMBER_TEXT_BYTES, "%s %u", role_name(member.role), member.rank);
	return out;
}
