/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trouble.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* Whether a log can be written again is known with the next line, which may be long in coming. */
#define LOG_TROUBLE_NS UINT64_C(60000000000)

static struct {
	pthread_mutex_t lock;
	_Atomic bool there[TROUBLE_COUNT];
	uint64_t set_ns[TROUBLE_COUNT];
	char text[TROUBLE_COUNT][TROUBLE_TEXT_BYTES];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

void trouble_set(enum trouble of, const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&board.lock);
	va_start(args, format);
	vsnprintf(board.text[of], sizeof(board.text[of]), format, args);
	va_end(args);
	board.set_ns[of] = clock_ns();
	atomic_store(&board.there[of], true);
	pthread_mutex_unlock(&board.lock);
}

void trouble_over(enum trouble of)
{
	/* what goes well goes well often */
	if (atomic_load_explicit(&board.there[of], memory_order_relaxed))
		atomic_store(&board.there[of], false);
}

bool trouble_text(char out[TROUBLE_TEXT_BYTES])
{
	uint64_t now = clock_ns();
	int used = 0;

	*out = 0;
	pthread_mutex_lock(&board.lock);
	for (int i = 0; i < TROUBLE_COUNT; i++)
		if (atomic_load(&board.there[i]) && used < TROUBLE_TEXT_BYTES &&
		    (i != TROUBLE_LOG || now - board.set_ns[i] < LOG_TROUBLE_NS))
			used += snprintf(out + used, (size_t)(TROUBLE_TEXT_BYTES - used), "%s%s",
					 used ? "; " : "", board.text[i]);
	pthread_mutex_unlock(&board.lock);
	return *out != 0;
}
