/* SPDX-License-Identifier: Apache-2.0
 *
 * shown.h -- names out of files, in lines for people: nothing of them moves the cursor or begins a line
 * (base/plain.h). JSON, CSV and drawings have rules of their own, where they are written.
 */
#ifndef CLI_SHOWN_H
#define CLI_SHOWN_H

/* An argument of printf: the text itself where it is plain, else escaped, good until the eighth call after. */
const char *shown(const char *text);

#endif
