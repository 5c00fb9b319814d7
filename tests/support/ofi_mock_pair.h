/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock_pair.h -- a subject of the suite over the mock of libfabric, and a target that is signalled
 * again before it has looked.
 */
#ifndef TESTS_SUPPORT_OFI_MOCK_PAIR_H
#define TESTS_SUPPORT_OFI_MOCK_PAIR_H

#include "tests/support/conformance.h"
#include "tests/support/ofi_mock.h"
#include "transport/ofi/ofi.h"

/* Provider "efa" over all devices of the mock, with everything that `subject` points to. */
struct ofi_mock_subject {
	struct ofi_mock_options mock;
	struct ofi_settings settings;
	struct ofi_options options;
	struct conformance subject;
};

void ofi_mock_subject(struct ofi_mock_subject *out, const struct ofi_mock_options *mock,
		      uint32_t streams, uint32_t depth, uint64_t chunk_bytes);

struct ofi_mock_pipeline {
	uint64_t wrong; /* looks that found a signal whose bytes were not there */
	_Atomic uint64_t shown; /* newest signal that was seen */
	const struct ofi_endpoint *from; /* while it runs */
};

/* `versions` times: one of four parts is written and signalled, whether or not the signal before it has
 * been shown; each look at the target holds all parts against the signal that is shown. Ends once all
 * are shown, or wait_ms after the last was sent. */
void ofi_mock_pipeline_watch(void); /* ofi_mock_options.watch: looks at each of its steps too */
int ofi_mock_pipeline(const struct conformance *subject, uint64_t versions, uint64_t wait_ms,
		      struct ofi_mock_pipeline *result, struct error *error);

#endif
