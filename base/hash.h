/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h -- a hash that nobody outside this process can aim at: SipHash-2-4 under a key that is drawn anew in
 * each process, for tables whose keys come from peers and files. Never for what is written down.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* [any thread] */
uint64_t hash_keyed(const void *bytes, size_t length);

#endif
