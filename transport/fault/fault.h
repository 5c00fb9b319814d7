/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h -- provider "fault": any other provider, with one kind of failure put in.
 *
 * The policy comes from provider_options or, for a whole process, from the environment:
 *
 *   WEFT_FAULT="inner=shm,op=post_write,at=7,kind=fail"
 *   WEFT_FAULT="inner=shm,op=completion,rate=0.01,seed=5,kind=delay,delay=50ms"
 *
 *   inner   provider to wrap (default shm). With WEFT_FAULT set, asking for that provider by
 *           name gets it wrapped, so a job's workers need not agree on it.
 *   op      an op of provider.h, "completion" (what poll reports), or "any" (the default)
 *   at      the k-th call of that op fails, counted per domain from 1; 0: only rate
 *   rate    share of calls that fail, by seed
 *   kind    fail; delay; kill (the process is killed before it makes that call, or hears of that completion); for
 *           completions also drop, flip (to a failure) and repeat; or none
 *   trace   a file that gets a line a posted chunk: "inference 1 offset 4096 bytes 512"
 *
 * Records name the inner provider: a faulty process talks to sound ones.
 */
#ifndef TRANSPORT_FAULT_FAULT_H
#define TRANSPORT_FAULT_FAULT_H

#include "base/error.h"
#include <stdint.h>

enum fault_kind { FAULT_NONE, FAULT_FAIL, FAULT_DELAY, FAULT_KILL, FAULT_DROP, FAULT_FLIP, FAULT_REPEAT,
		  FAULT_KIND_COUNT };

struct fault_options {
	char inner[16];             /* "": shm */
	const void *inner_options;  /* the inner provider's */
	char op[32];                /* "": any */
	enum fault_kind kind;
	uint64_t at;
	double rate;
	uint64_t seed;
	uint64_t delay_ms;
	char trace[256];            /* "": none */
	_Atomic uint64_t *calls;    /* NULL, or counts the calls the policy looked at */
};

/* ERROR_CONFIG names the key and the value. */
int fault_options_parse(struct fault_options *options, const char *text, struct error *error);
/* WEFT_FAULT asks for `provider` to be wrapped: 1; not: 0; malformed: ERROR_CONFIG. */
int fault_wanted(const char *provider, struct error *error);

#endif
