/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h -- `weft status`: asks the controller of a running job, judges, shows.
 *
 *   controller ◄── ask, report ──► status_ask.c ──► two looks, a moment apart ──► status_why.c: findings
 *                                                                       └───────► status_show.c, status_json.c
 *
 * Two looks, since a rate is what lies between them, and who has not moved between them may be stuck.
 */
#ifndef CLI_STATUS_H
#define CLI_STATUS_H

#include "base/array.h"
#include "wire/message.h"

/* ---- status_ask.c ---- */

struct asker;
struct asker_options {
	const char *controller, *key_file; /* key_file "": none */
	uint64_t timeout_ms;               /* of each answer */
	bool links;
};
int asker_open(struct asker **asker, const struct asker_options *options, struct error *error);
/* *report: message_fini. ERROR_TIMEOUT says what stands between. */
int asker_ask(struct asker *asker, struct message *report, struct error *error);
void asker_close(struct asker **asker);

/* ---- status_why.c: pure ---- */

/* Who is at fault, or might be. */
struct finding {
	bool fault;                /* else a note: others wait, and nothing says that it is wrong */
	struct member who;         /* rank UINT32_MAX: the job, or its controller */
	char *text;                /* owned: one sentence that begins with who it is */
};
typedef ARRAY(struct finding) findings;
/* What two looks say; before NULL: there was one. Faults come first. false: no memory. */
bool status_why(const struct message_report *before, const struct message_report *now, findings *out);
void findings_free(findings *found);
bool findings_fault(const findings *found);

/* "trainer 1 (host a, pid 7)" */
#define STATUS_WHO_BYTES 256
char *status_who(const struct report_member *member, char out[STATUS_WHO_BYTES]);
const struct report_member *status_find(const struct message_report *report, struct member who);
/* What a NIC carries a second while it is busy: between two looks, or, where it was hardly busy, since it was opened; 0: unknown. */
uint64_t status_nic_rate(const struct report_member *before, const struct nic_traffic *nic);

/* ---- status_show.c, status_json.c ---- */

struct status_view {
	const char *job, *controller;
	const struct message_report *before, *now;
	const findings *found;
	bool links;
};
void status_show(const struct status_view *view);
void status_show_why(const struct status_view *view);
void status_json(const struct status_view *view);

#endif
