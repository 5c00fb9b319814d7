/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_mock_pair.h -- two domains of provider "verbs" on two hosts of the mock: a (host 0, a
 * trainer) writes into b (host 1, an inference rank). One thread plays both sides, so a seed
 * decides everything.
 */
#ifndef TESTS_SUPPORT_VERBS_MOCK_PAIR_H
#define TESTS_SUPPORT_VERBS_MOCK_PAIR_H

#include "tests/support/conformance.h"
#include "tests/support/verbs_mock.h"
#include "transport/verbs/verbs.h"

/* Small queues and chunks, short timeouts. */
void verbs_pair_settings(struct verbs_settings *settings);
/* Domains, regions of `bytes`, endpoints that are connected and probed. */
int verbs_pair_open(struct pair *pair, const struct verbs_settings *settings, uint64_t bytes,
		    struct error *error);
int verbs_pair_domains(struct pair *pair, const struct verbs_settings *settings, uint64_t bytes,
		       struct error *error);
int verbs_pair_connect(struct pair *pair, struct error *error);
/* Writes version `version` of every byte and signals it. */
int verbs_pair_send(struct pair *pair, uint64_t version, uint64_t deadline_ns, struct error *error);
/* Looks until the signal is there; then every byte must be. 1: it is not so. */
int verbs_pair_check(struct pair *pair, uint64_t version, uint64_t deadline_ns,
		     struct error *error);
/* All of it: versions 1..versions. */
int verbs_pair_session(const struct verbs_settings *settings, uint64_t bytes, uint64_t versions,
		       struct error *error);
uint64_t verbs_pair_soon(void); /* 5 s: longer is a hang */

#endif
