/* SPDX-License-Identifier: Apache-2.0
 *
 * transform_element.h -- numbers from one format to another for the referee (transform.c), as
 * job/transform.h and pack/element.h word it, sharing no code with what packs. Loops over plain
 * formulas that compilers turn into vectors; the same bits whatever the processor has.
 *
 *   F32, BF16, F16, F8_E4M3 ── referee_widen ──► F32 ── referee_scale ──► F32
 *                     F32 ── referee_narrow, referee_quantise ──► F32, BF16, F16, F8_E4M3
 *
 * NaNs keep sign and upper payload, but for F8_E4M3, which has none. Arrays do not overlap.
 */
#ifndef WORKER_REFEREE_TRANSFORM_ELEMENT_H
#define WORKER_REFEREE_TRANSFORM_ELEMENT_H

#include "job/dtype.h"
#include <stdbool.h>
#include <stdint.h>

void referee_widen(enum dtype from, const void *elements, float *values, uint32_t count);
void referee_narrow(enum dtype to, const float *values, void *elements, uint32_t count);
/* Each value times the scale of its block; of a NaN only the value's sign is left. */
void referee_scale(float *values, float scale, uint32_t count);
/* The largest magnitude of the finite ones; 0 when there is none. */
float referee_largest(const float *values, uint32_t count);
/* F8_E4M3 of value * (1 / scale); scale: of a block of job/transform.h, so at least 1e-10 / 448. */
void referee_quantise(const float *values, float scale, unsigned char *codes, uint32_t count);
/* For tests: false takes the loops that every processor has. Call it while nothing is
 * transformed. */
void referee_use_wide(bool wide);

#endif
