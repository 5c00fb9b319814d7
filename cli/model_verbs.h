/* SPDX-License-Identifier: Apache-2.0
 *
 * model_verbs.h -- the verbs of `weft model` that have a file of their own.
 */
#ifndef CLI_MODEL_VERBS_H
#define CLI_MODEL_VERBS_H

int model_check(int argc, char **argv); /* model_check.c */

#endif
