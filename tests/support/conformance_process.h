/* SPDX-License-Identifier: Apache-2.0
 *
 * conformance_process.h -- the part of the suite where the peer is another process, and dies.
 */
#ifndef TESTS_SUPPORT_CONFORMANCE_PROCESS_H
#define TESTS_SUPPORT_CONFORMANCE_PROCESS_H

#include "tests/support/conformance.h"

int conformance_process_run(const struct conformance *subject);

#endif
