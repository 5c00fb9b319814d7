/* SPDX-License-Identifier: Apache-2.0
 *
 * trouble.h -- what is wrong with this process and harms its work not at all, so that nobody is told of it but who asks
 * (`weft status`): a log or a file of figures that cannot be written, of a disk that is full. It stands until it is over.
 *
 * [any thread]
 */
#ifndef BASE_TROUBLE_H
#define BASE_TROUBLE_H

#include <stdbool.h>

#define TROUBLE_TEXT_BYTES 512

enum trouble { TROUBLE_LOG, TROUBLE_METRICS, TROUBLE_TRACE, TROUBLE_COUNT };

void trouble_set(enum trouble of, const char *format, ...) __attribute__((format(printf, 2, 3)));
void trouble_over(enum trouble of);
/* What there is, one after the other; false: nothing. */
bool trouble_text(char out[TROUBLE_TEXT_BYTES]);

#endif
