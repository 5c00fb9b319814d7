/* SPDX-License-Identifier: Apache-2.0
 *
 * member.h -- who a process is in a job: (role, rank, incarnation).
 */
#ifndef JOB_MEMBER_H
#define JOB_MEMBER_H

#include <stdint.h>

enum role { ROLE_TRAINER, ROLE_INFERENCE, ROLE_COUNT };

/* Where a source box's bytes meet the wire, or the target (routing/plan/path.h). */
enum route_path { PATH_DIRECT, PATH_MAPPED, PATH_REPLICA, PATH_LANDED, PATH_COUNT };

struct member {
	enum role role;
	uint32_t rank;
};

const char *role_name(enum role role);       /* "trainer", "inference" */
const char *route_path_name(enum route_path path); /* "direct", "mapped", "replica", "landed" */
#define MEMBER_TEXT_BYTES 32
char *member_text(struct member member, char out[MEMBER_TEXT_BYTES]); /* "trainer 3" */

#endif
