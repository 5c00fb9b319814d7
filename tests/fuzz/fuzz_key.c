/* SPDX-License-Identifier: Apache-2.0
 *
 * A key file as somebody else wrote it: a key that prints to the same text, or one error that names the
 * file and shows nothing of what is in it. First as it is; then with its check made right, since a forger
 * can compute it.
 */
#include "trust/key.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static void try(const char *text, size_t bytes)
{
	char again[KEY_FILE_BYTES], id[KEY_ID_BYTES];
	struct error error = {0};
	struct key_pair pair;
	struct key key;

	if (key_parse(&key, text, bytes, "the-file", &error)) {
		must(error.code == ERROR_CONFIG && strstr(error.text, "the-file"));
		must(strlen(error.text) < 200);
		return;
	}
	must(key.role < KEY_ROLES);
	/* hex digits of either case are read */
	must(key_print(&key, again) == bytes);
	must(strlen(key_id(&key, id)) == KEY_ID_BYTES - 1);
	for (unsigned role = 0; role < KEY_ROLES; role++)
		must((key_pair(&key, (enum key_role)role, &pair, &error) == 0) ==
		     (key.role == KEY_JOB || key.role == role));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char hash[16];
	char text[2 * KEY_FILE_BYTES];
	const char *at;

	if (size > KEY_FILE_BYTES)
		return 0;
	memcpy(text, data, size);
	try(text, size);
	at = memmem(text, size, "\ncheck ", 7);
	if (!at)
		return 0;
	size = (size_t)(at + 1 - text);
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)text, size, NULL, 0);
	size += (size_t)sprintf(text + size, "check ");
	for (int i = 0; i < 8; i++)
		size += (size_t)sprintf(text + size, "%02x", hash[i]);
	text[size++] = '\n';
	try(text, size);
	return 0;
}
