/* SPDX-License-Identifier: Apache-2.0
 *
 * assert.h -- what must be true at a place of the code whatever comes from outside: a broken one is
 * a bug of ours, never of a caller, a file or a peer (those get an error).
 *
 *   WEFT_ASSERT(slot->phase < PHASE_COUNT);
 *   WEFT_ASSERT_OP(counted, ==, core->count);    shows both values as well
 *
 * On where the build defines WEFT_ASSERTS=1 (Debug, sanitizers, fuzzers): the first broken one goes
 * to stderr with file and line, and the process aborts. Off, the condition is still compiled and
 * never evaluated: it must not be what does the work.
 */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

#ifndef WEFT_ASSERTS
#define WEFT_ASSERTS 0
#endif

/* One line to stderr, then abort(). `values` are the two of a comparison, or NULL. */
_Noreturn void assert_failed(const char *file, int line, const char *condition,
			     const long long values[2]);

#if WEFT_ASSERTS

#define WEFT_ASSERT(condition)                                                             \
	((condition) ? (void)0 : assert_failed(__FILE__, __LINE__, #condition, (void *)0))
/* For integers, enums and bools; a broken one is evaluated once more, to be shown. */
#define WEFT_ASSERT_OP(left, op, right)                                                    \
	((left)op(right) ? (void)0                                                         \
			 : assert_failed(__FILE__, __LINE__, #left " " #op " " #right,     \
					 (const long long[]){(long long)(left),            \
							     (long long)(right)}))

#else

#define WEFT_ASSERT(condition)          ((void)(0 && (condition)))
#define WEFT_ASSERT_OP(left, op, right) ((void)(0 && ((left)op(right))))

#endif
#endif
