/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.h -- what the controller's core knows of the job, as numbers: a copy, that others may look at while the core goes on.
 */
#ifndef CONTROLLER_FIGURES_H
#define CONTROLLER_FIGURES_H

#include "controller/core.h"
#include "metrics/codes.h"

#define FIGURES_PHASES 8u
#define FIGURES_STATES 5u

struct controller_figures {
	uint32_t state;                         /* of FIGURES_STATES */
	uint64_t epoch, plans;
	struct {
		uint32_t in[FIGURES_PHASES];    /* ranks in each phase */
		uint64_t oldest, newest;        /* version of those who are here; 0: nobody is, or has none */
		uint64_t heard_ms;              /* when the one who is silent longest was heard; 0: nobody is here */
		uint64_t slowest_us;            /* longest last update; of a trainer without the wait for ranks; 0: none yet */
		struct code_counts losses;
	} of[ROLE_COUNT];
	struct code_counts failures;            /* of the job */
};
/* One look at every rank. */
void controller_figures(const struct controller *controller, struct controller_figures *figures);
const char *figures_phase(uint32_t phase); /* "absent", .. */
struct slot;
const char *figures_phase_of(const struct controller *controller, const struct slot *slot);
uint32_t figures_state_of(const struct controller *controller);
const char *figures_state(uint32_t state); /* "gathering", .. in one word */

#endif
