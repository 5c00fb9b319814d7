/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h -- a maximum for every count and length that a peer can name. A message past one of
 * these is refused with the field, the value and the limit.
 */
#ifndef WIRE_LIMITS_H
#define WIRE_LIMITS_H

#include "job/box.h"
#include "job/parallel.h"
#include "job/transports.h"

#define WIRE_VERSION 10

/* A plan or layout of 10^6 rows takes up to 57 MB. Decoded, a row of 11 bytes takes 136, so
 * the counts, and not the bytes, bound what a hostile message costs: a quarter of a GiB. */
#define LIMIT_MESSAGE_BYTES   (64u << 20)
#define LIMIT_JOB_BYTES       128     /* a job id, terminator included */
#define LIMIT_LABEL_BYTES     PARALLEL_TEXT_BYTES
#define LIMIT_NAME_BYTES      512     /* tensor, parameter, host names */
#define LIMIT_TEXT_BYTES      1024    /* error messages */
#define LIMIT_RANKS           PARALLEL_RANKS_MAX
#define LIMIT_TENSORS         1000000u
#define LIMIT_PARAMS          1000000u
#define LIMIT_PIECES          2000000u
#define LIMIT_PEERS           PARALLEL_RANKS_MAX
#define LIMIT_ROUTES          2000000u
#define LIMIT_DIGESTS         LIMIT_RANKS
#define LIMIT_RECORD_BYTES    4096    /* an endpoint record or a region export */
#define LIMIT_REGIONS         4096
#define LIMIT_NICS            64      /* that one worker uses */
#define LIMIT_OFFERS          TRANSPORTS_MAX
#define LIMIT_REACH_BYTES     256     /* what of a transport must be equal on both sides */
#define LIMIT_WAITS           8       /* workers that one names as those that it waits for */
#define LIMIT_EVENTS          32      /* that a report tells */
#define LIMIT_LINKS           4096    /* the same: pairs of a trainer and an inference rank; a routing dump has all */
#define LIMIT_TRAFFIC_NAME_BYTES 168  /* a NIC in an activity; what of it is shown */
#define LIMIT_COPIES          2       /* of a parameter: in place, and its shadow */
#define LIMIT_CODE            999     /* error codes; a peer's may be unknown here */
#define LIMIT_KEY_BYTES       64      /* a key of a map, no terminator */
#define DTYPE_NAME_BYTES      7       /* the longest: F8_E4M3; no terminator */

#endif
