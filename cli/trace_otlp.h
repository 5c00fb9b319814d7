/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_otlp.h -- traces for OpenTelemetry (docs/traces.md): OTLP's JSON as the collector's file receiver reads it, one whole
 * TracesData a line.
 *
 *   process   a resource: service, instance, host, process, weft's job, role and rank, and how its clock was found
 *   lane      a scope
 *   row       a span (cli/trace_spans.h); what it carries are attributes, weft.NAME
 *
 * The receiver takes a line of a MiB at most, and cuts what is longer, so a process is as many lines as it needs, each with its
 * resource and complete for itself. Nothing waits in memory but a line and the spans' places.
 */
#ifndef CLI_TRACE_OTLP_H
#define CLI_TRACE_OTLP_H

#include "cli/trace_file.h"
#include <stdio.h>

#define TRACE_OTLP_LINE_BYTES (512u << 10)

/* ERROR_FILE: the files' clocks of the day cannot be. */
int trace_put_otlp(FILE *stream, const struct trace_set *set, struct error *error);

#endif
