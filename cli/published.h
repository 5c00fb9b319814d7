/* SPDX-License-Identifier: Apache-2.0
 *
 * published.h -- `weft route simulate --published`: runs that others measured, beside ours.
 */
#ifndef CLI_PUBLISHED_H
#define CLI_PUBLISHED_H

#include "cli/simulate_options.h"

int published_run(const struct simulate_flags *flags, struct error *error);

#endif
