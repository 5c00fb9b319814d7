/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c -- why not memcpy: an ordinary store first reads the target's cache line from memory,
 * so a copy of n bytes moves 3n; a non-temporal store moves 2n. libc switches to such stores
 * only past a threshold near the size of the last-level cache, and our pieces are smaller.
 *
 *   target   |head| 64-byte lines, non-temporal              |tail|
 *
 * Rows whose lengths are not whole lines would leave half-written lines at every border, which
 * cost more than they save: they are first packed into a block that stays in the cache, and
 * the block is streamed out.
 */
#include "base/copy.h"

#include "base/processor.h"
#include <string.h>

#define LINE_BYTES 64u
#define STREAM_MIN 4096u /* below this the head and the tail outweigh the rest */
/* How far before its turn a line is asked for: the processor's own prefetchers stop at the end of
 * a page, and of a row. One line of four is enough: they bring its neighbours, and these then take
 * none of the ten to sixteen lines that a core can wait for itself. */
#define AHEAD_BYTES	 1024u
#define AHEAD_ROWS_BYTES 4096u
#define BLOCK_BYTES	 16384u

/* `lines` whole lines to a 64-byte aligned target; those `ahead` bytes after them will be next. */
typedef void (*lines_kernel)(unsigned char *target, const unsigned char *source, size_t lines,
			     size_t ahead);

#if PROCESSOR_X86
#include <immintrin.h>

__attribute__((target("avx512f"))) static void
lines_avx512(unsigned char *target, const unsigned char *source, size_t lines, size_t ahead)
{
	for (; lines >= 4; lines -= 4, target += 256, source += 256) {
		__m512i a = _mm512_loadu_si512(source), b = _mm512_loadu_si512(source + 64);
		__m512i c = _mm512_loadu_si512(source + 128), d = _mm512_loadu_si512(source + 192);

		__builtin_prefetch(source + ahead);

		_mm512_stream_si512((void *)target, a);
		_mm512_stream_si512((void *)(target + 64), b);
		_mm512_stream_si512((void *)(target + 128), c);
		_mm512_stream_si512((void *)(target + 192), d);
	}
	for (; lines; lines--, target += 64, source += 64) {
		__builtin_prefetch(source + ahead);
		_mm512_stream_si512((void *)target, _mm512_loadu_si512(source));
	}
}

__attribute__((target("avx2"))) static void
lines_avx2(unsigned char *target, const unsigned char *source, size_t lines, size_t ahead)
{
	for (; lines; lines--, target += 64, source += 64) {
		__m256i a = _mm256_loadu_si256((const void *)source);
		__m256i b = _mm256_loadu_si256((const void *)(source + 32));

		__builtin_prefetch(source + ahead);

		_mm256_stream_si256((void *)target, a);
		_mm256_stream_si256((void *)(target + 32), b);
	}
}

void copy_fence(void)
{
	_mm_sfence();
}
#else
void copy_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}
#endif

static const struct kernel {
	struct processor_row row;
	enum copy_kernel id;
	lines_kernel lines;
} kernel_rows[] = {
#if PROCESSOR_X86
	{{"avx512", processor_has_avx512}, COPY_KERNEL_AVX512, lines_avx512},
	{{"avx2", processor_has_avx2}, COPY_KERNEL_AVX2, lines_avx2},
#endif
	{{"portable", processor_has_any}, COPY_KERNEL_PORTABLE, NULL},
};
static struct processor_kernels kernels = PROCESSOR_KERNELS(kernel_rows);

static const struct kernel *kernel(void)
{
	return processor_chosen(&kernels);
}

bool copy_kernel_use(const char *name)
{
	return processor_choose(&kernels, name);
}

void copy_bytes(void *target, const void *source, size_t bytes)
{
	unsigned char *to = target;
	const unsigned char *from = source;
	lines_kernel lines = bytes >= STREAM_MIN ? kernel()->lines : NULL;
	size_t head, body;

	if (!lines) {
		if (bytes)
			memcpy(to, from, bytes);
		return;
	}
	head = (size_t)(-(uintptr_t)to & (LINE_BYTES - 1));
	memcpy(to, from, head);
	body = (bytes - head) / LINE_BYTES;
	lines(to + head, from + head, body, AHEAD_BYTES);
	head += body * LINE_BYTES;
	memcpy(to + head, from + head, bytes - head);
}

void copy_rows(void *target, const void *source, uint64_t rows, uint64_t row_bytes,
	       uint64_t stride_bytes)
{
	_Alignas(64) unsigned char block[BLOCK_BYTES];
	unsigned char *to = target;
	const unsigned char *from = source;
	lines_kernel lines = rows * row_bytes >= STREAM_MIN ? kernel()->lines : NULL;
	size_t filled = 0, ahead;

	if (rows == 1 || stride_bytes == row_bytes) {
		copy_bytes(to, from, rows * row_bytes);
		return;
	}
	if (lines && row_bytes % LINE_BYTES == 0 && (uintptr_t)to % LINE_BYTES == 0) {
		ahead = (AHEAD_ROWS_BYTES + row_bytes - 1) / row_bytes * stride_bytes;
		for (; rows; rows--, to += row_bytes, from += stride_bytes)
			lines(to, from, row_bytes / LINE_BYTES, ahead);
		return;
	}
	if (!lines || row_bytes > BLOCK_BYTES / 2) {
		for (; rows; rows--, to += row_bytes, from += stride_bytes)
			copy_bytes(to, from, row_bytes);
		return;
	}
	for (; rows; rows--, from += stride_bytes) {
		if (filled + row_bytes > BLOCK_BYTES) {
			copy_bytes(to, block, filled);
			to += filled;
			filled = 0;
		}
		memcpy(block + filled, from, row_bytes);
		filled += row_bytes;
	}
	copy_bytes(to, block, filled);
}

const char *copy_kernel_name(void)
{
	return kernel()->row.name;
}

enum copy_kernel copy_kernel(void)
{
	return kernel()->id;
}
