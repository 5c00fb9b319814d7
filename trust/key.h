/* SPDX-License-Identifier: Apache-2.0
 *
 * key.h -- who may take part in a job: key files, and the CURVE keys that come of them.
 *
 *   weft key make job.key ─► 32 random bytes ─┬─► controller   a secret and a public key each
 *                                             ├─► trainer
 *                                             ├─► inference
 *                                             └─► observer     weft tools between two hosts
 *
 * The job's own file holds what all four are derived from (crypto_kdf of libsodium, context
 * "weft-key"). A role's file holds that role's secret and the controller's public key: who has it can
 * be that role, and neither another one nor the controller. Both are text, four lines:
 *
 *   weft-key 1 ROLE        job, trainer, inference or observer
 *   controller HEX         the controller's public key, 32 bytes
 *   secret HEX             32 bytes: of the job, or of the role
 *   check HEX              BLAKE2b of the lines above, 8 bytes: a damaged file is found
 *
 * Source: CURVE is ZeroMQ RFC 25/26, over Curve25519 as libsodium's crypto_box has it.
 * Threads: a key is plain data of its owner.
 */
#ifndef TRUST_KEY_H
#define TRUST_KEY_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define KEY_BYTES      32
#define KEY_FILE_BYTES 512 /* more than any key file has */
#define KEY_ID_BYTES   17  /* "3f9c51d2a07be644", terminator included */

enum key_role { KEY_JOB, KEY_TRAINER, KEY_INFERENCE, KEY_OBSERVER, KEY_ROLES };

struct key {
	enum key_role role; /* KEY_JOB: of all roles, the controller too */
	unsigned char controller[KEY_BYTES], secret[KEY_BYTES];
};

/* What a CURVE socket takes. */
struct key_pair {
	unsigned char public_key[KEY_BYTES], secret[KEY_BYTES];
};

/* A new job's. ERROR_UNSUPPORTED where the kernel gives no random bytes. */
int key_make(struct key *key, struct error *error);
/* The key of one role out of the job's; ERROR_CONFIG when `job` is not the job's. */
int key_of_role(const struct key *job, enum key_role role, struct key *out, struct error *error);
/* The pair of a role; as KEY_JOB the controller's. ERROR_CONFIG when the key is not good for it. */
int key_pair(const struct key *key, enum key_role as, struct key_pair *out, struct error *error);
/* Wipes it. */
void key_forget(struct key *key);
void key_pair_forget(struct key_pair *pair);

/* "job", "trainer", "inference", "observer"; by name, KEY_ROLES when there is none. */
const char *key_role_name(enum key_role role);
enum key_role key_role_find(const char *name);
/* What two people can read to each other: of the job that the key belongs to, no secret. */
char *key_id(const struct key *key, char out[KEY_ID_BYTES]);

/* The file's text. `name` stands in messages; ERROR_CONFIG says which line is wrong, never what is in it. */
int key_parse(struct key *key, const char *text, size_t bytes, const char *name,
	      struct error *error);
size_t key_print(const struct key *key, char out[KEY_FILE_BYTES]);
/* ERROR_CONFIG when others than the owner and his group may read the file or his group may write it. */
int key_read(struct key *key, const char *path, struct error *error);
/* A new file that its owner alone may read; ERROR_CONFIG when there is one, which is never replaced. */
int key_write(const struct key *key, const char *path, struct error *error);

/* Which file lies at a path, so that none that came later is removed in its stead. */
struct key_place {
	uint64_t inode;
	struct timespec changed;
};
void key_place_of(const char *path, struct key_place *place);
/* And its folder, when nothing else is in it. */
void key_remove(const char *path, const struct key_place *place);

#endif
