/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h -- `weft doctor`: private to cli/doctor*.c.
 *
 *   doctor_open: reads every fact once      RDMA devices, settings, topology, choice of NICs
 *        │
 *   tables of checks ── run ─► finding ─► printed, as a line or an object
 *        │                      state, evidence, details, fix
 *   verdict: what will be used, what to fix first
 *
 * A check looks at facts and says; it changes nothing on the machine.
 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli/doctor_system.h"
#include "cli/socket.h"
#include "base/error.h"
#include "base/text.h"
#include "job/transports.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/facts.h"
#include "transport/verbs/records.h"
#include "transport/verbs/settings.h"
#include "transport/verbs/topology.h"
#include <stdbool.h>
#include <stdint.h>

#define DOCTOR_PORT 29610

/* Nothing was tried; what was tried does not get there; it does; it does not, but tcp does. */
enum peer_way { PEER_UNTRIED, PEER_FAILED, PEER_REACHED, PEER_BY_TCP };

enum check_state { CHECK_PASS, CHECK_SKIP, CHECK_WARN, CHECK_FAIL, CHECK_STATES };

struct finding {
	const char *name;
	enum check_state state;
	struct text evidence; /* one line */
	struct text details;  /* any number of lines, each with its line break */
	struct text fix;      /* one line, or empty */
	bool why;             /* the verdict, which says the fix, says the evidence too */
};

struct doctor_options {
	const char *transport; /* as it was given; NULL: whatever works */
	struct transports wanted; /* the same, name by name */
	const char *nics, *peer, *root;
	bool port_given;
	uint16_t port;
	bool serve, json;
	struct socket_trust trust;
};

struct doctor {
	struct doctor_options options;
	struct system system;
	bool live;                   /* this machine, not a copied tree */
	bool colour;

	int devices_errno;           /* why /sys/class/infiniband cannot be listed, or 0 */
	system_names devices;        /* the kernel's RDMA devices */
	system_gpus gpus;
	struct verbs_facts facts;    /* what libibverbs sees; empty when not live */
	struct error facts_error;    /* code ERROR_NONE: read */
	struct verbs_settings settings;
	struct error settings_error, tcp_settings_error; /* code ERROR_NONE: none */
	struct verbs_topology *topology;   /* NULL: hwloc sees nothing */
	struct verbs_nic_choice nics[VERBS_NICS_MAX];
	uint32_t nic_count;
	struct error nics_error;
	bool nics_chosen;            /* else nobody could choose: no device is open */

	/* the transport whose loopback write arrived, the first of those that were asked for; or "" */
	char uses[TRANSPORTS_NAME_BYTES];
	bool works[TRANSPORTS_MAX];  /* by its place in options.wanted */
	bool tcp_works, tcp_far;     /* far: over an interface that leads to other hosts */
	enum peer_way peer;          /* what became of --peer */
	uint32_t counts[CHECK_STATES];
	char first_fix[1024];        /* of the worst finding, the earliest of these */
	char first_name[64];
	enum check_state worst;
};

/* What a check needs; where that is not there it is skipped, and says so. */
enum check_need {
	NEEDS_VERBS = 1,  /* --transport names verbs or was not given */
	NEEDS_RDMA = 2,    /* nor is there no RDMA device */
	NEEDS_LIVE = 4,    /* this machine, not a copied tree */
	NEEDS_OPENED = 8,  /* a device that could be opened: ports and GIDs are known from these */
	NEEDS_PCI = 16,    /* an RDMA device on PCI */
	NEEDS_DEVICE = NEEDS_RDMA | NEEDS_LIVE,
	NEEDS_PORTS = NEEDS_DEVICE | NEEDS_OPENED
};

struct check {
	const char *name;
	unsigned needs; /* of enum check_need */
	void (*run)(struct doctor *doctor, struct finding *finding);
};

/* Tables; each ends with a row of zeros. */
extern const struct check doctor_rdma_checks[], doctor_link_checks[], doctor_host_checks[],
	doctor_cuda_checks[], doctor_gpudirect_checks[], doctor_last_checks[];

/* State and the one line. Called again, it replaces both. */
void finding_say(struct finding *finding, enum check_state state, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The state becomes at least this bad; the line stays. */
void finding_worsen(struct finding *finding, enum check_state state);
void finding_detail(struct finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The first one stays: it is the first thing to do. */
void finding_fix(struct finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Runs, prints and counts the checks of a table. */
void doctor_run(struct doctor *doctor, const struct check *table);
/* Prints and counts a finding that was made elsewhere, and frees it. */
void doctor_print(struct doctor *doctor, struct finding *finding);

/* This machine has RDMA devices: sysfs says so, or (where a container hides that) libibverbs. */
bool doctor_has_rdma(const struct doctor *doctor);
/* At least one is a card, not software. */
bool doctor_has_card(const struct doctor *doctor);
/* --transport names it; it alone; is given and names others. */
bool doctor_wants(const struct doctor *doctor, const char *transport);
bool doctor_wants_only(const struct doctor *doctor, const char *transport);
bool doctor_wants_other(const struct doctor *doctor, const char *transport);
/* Its row says that it never reaches another host. */
bool doctor_stays_here(const char *transport);
/* Several are asked for: what one of them cannot do is no failure while another one can. */
bool doctor_wants_several(const struct doctor *doctor);
/* False: something that is needed is not there, which the finding says. */
bool doctor_meets(const struct doctor *doctor, unsigned needs, struct finding *finding);

/* False: nothing of CUDA's is to be had here, which the first check says; this one is skipped. */
bool doctor_has_cuda(struct finding *finding, int *count);

/* PASS when all of them are good, WARN when some are. */
enum check_state check_share(size_t good, size_t all);
/* A chosen NIC. */
const struct verbs_device *doctor_nic(const struct doctor *doctor, uint32_t rail,
				      const struct verbs_port **port);

/* doctor_peer.c. Each step is a finding of its own. */
void doctor_peer_run(struct doctor *doctor);
int doctor_serve(struct doctor *doctor, struct error *error);

#endif
