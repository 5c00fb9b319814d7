/* SPDX-License-Identifier: Apache-2.0
 *
 * nics.h -- what choosing by itself (nics.c) and choosing by name (nic_names.c) share.
 */
#ifndef TRANSPORT_VERBS_NICS_H
#define TRANSPORT_VERBS_NICS_H

#include "base/array.h"
#include "transport/verbs/facts.h"

/* A port that may be used. */
struct nics_candidate {
	struct verbs_device *device;
	struct verbs_port *port;
	uint32_t distance;
};
typedef ARRAY(struct nics_candidate) nics_candidates;

struct nics_chooser {
	struct verbs_facts *facts;
	const struct verbs_settings *settings;
	const char *from; /* who named NICs: "--nic" */
	uint32_t rank;
	bool bad_index;   /* a forced GID index is not there */
	nics_candidates left;
};

void nics_reject(struct verbs_port *port, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Forgets candidates whose port was rejected. */
void nics_drop_rejected(struct nics_chooser *chooser);
/* "..., there is: mlx5_0:1, mlx5_1:1" */
int nics_unknown_name(const struct nics_chooser *chooser, const char *what, struct error *error);

/* Leaves the ports that settings->nics names, in its order; names what is wrong with them. */
int nics_choose_named(struct nics_chooser *chooser, uint32_t max, struct error *error);
/* Leaves the ports that NCCL_IB_HCA matches. named: it lists what to use, not what to leave. */
int nics_keep_matching(struct nics_chooser *chooser, bool *named, struct error *error);

#endif
