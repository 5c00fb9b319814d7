/* SPDX-License-Identifier: Apache-2.0
 *
 * told_random.c -- LD_PRELOAD for tests/attack/test_never_printed.py: the random bytes that a program asks for
 * (cookies, keys of registered memory) are written to $WEFT_TOLD/PID, a line of hexadecimal each, so that
 * the test knows what must not be printed. With WEFT_TOLD_PLANT=N they are printed as well, each in another form,
 * the first in the N-th.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define FORMS 11

static void tell(const unsigned char *bytes, size_t length)
{
	const char *folder = getenv("WEFT_TOLD");
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%d", folder ? folder : "/nowhere", (int)getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		abort(); /* the test would look for nothing */
	for (size_t i = 0; i < length; i++)
		dprintf(fd, "%02x", bytes[i]);
	dprintf(fd, "\n");
	close(fd);
}

/* One line on standard error, as a careless log line would have it. */
static void plant(const unsigned char *bytes, size_t length, unsigned form)
{
	static const char *const of_bytes[] = {"%02x", "%02X",	  "%02x:", "0x%02X, ",
					       "%u, ", "\\x%02x", "%c"};
	unsigned long long word;

	dprintf(STDERR_FILENO, "planted %u ", form);
	memcpy(&word, bytes, sizeof(word));
	if (form == 7)
		dprintf(STDERR_FILENO, "0x%llx", word);
	else if (form == 8)
		dprintf(STDERR_FILENO, "%016llX", (unsigned long long)__builtin_bswap64(word));
	else if (form == 9)
		dprintf(STDERR_FILENO, "%llu", word);
	else if (form == 10)
		dprintf(STDERR_FILENO, "%lld", (long long)__builtin_bswap64(word));
	for (size_t i = 0; form < 7 && i < length; i++)
		dprintf(STDERR_FILENO, of_bytes[form], bytes[i]);
	dprintf(STDERR_FILENO, "\n");
}

__attribute__((visibility("default"))) int getentropy(void *out, size_t length)
{
	static _Atomic int next;
	const char *first = getenv("WEFT_TOLD_PLANT");

	if (getrandom(out, length, 0) != (ssize_t)length) {
		errno = EIO;
		return -1;
	}
	if (length >= 8) {
		tell(out, length);
		if (first)
			plant(out, length, (unsigned)(atoi(first) + next++) % FORMS);
	}
	return 0;
}
