/* SPDX-License-Identifier: Apache-2.0
 *
 * truncated.h -- files that are mapped and truncated meanwhile: reading what is gone is SIGBUS, which by itself
 * ends a process without a word.
 */
#ifndef BASE_TRUNCATED_H
#define BASE_TRUNCATED_H

/* From now on it ends this process with one message that names the file, and the exit code of an input
 * error. For programs alone, which own their signals; a SIGBUS that is of no file ends it as ever. */
void truncated_catch(const char *program);

#endif
