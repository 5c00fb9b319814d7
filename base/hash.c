/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <pthread.h>
#include <sodium.h>

static unsigned char key[crypto_shorthash_KEYBYTES];
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw(void)
{
	if (sodium_init() < 0) /* no random bytes: as it would be without a key */
		return;
	crypto_shorthash_keygen(key);
}

uint64_t hash_keyed(const void *bytes, size_t length)
{
	uint64_t hash;

	_Static_assert(sizeof(hash) == crypto_shorthash_BYTES, "64 bits");
	pthread_once(&drawn, draw);
	crypto_shorthash((unsigned char *)&hash, bytes, length, key);
	return hash;
}
