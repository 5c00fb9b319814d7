/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_predicted.h -- a simulated schedule (routing/lab/trace.h) beside what was measured.
 */
#ifndef CLI_TRACE_PREDICTED_H
#define CLI_TRACE_PREDICTED_H

#include "cli/trace_file.h"
#include <stdio.h>

/* Its events, behind others: lanes named "predicted: ..", each below that of the same rank and peer, since viewers sort processes as they
 * like; what has no process there gets one, "predicted: all ranks". Moment 0 is where the first write of any trainer began. ERROR_FILE:
 * it is no such schedule. */
int trace_put_predicted(FILE *stream, const char *path, const struct trace_set *set, struct error *error);

#endif
