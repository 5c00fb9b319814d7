/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_sum.c -- XXH3-64 of more than 240 bytes, as lines pass by:
 *
 *   line i      sums[j ^ 1] += word j;  key = word j ^ secret[8 * i ..];  sums[j] += low * high
 *   16 lines    sums are scrambled, i begins at 0 again
 *   last line   whole, though it may overlap the one before: its own place in the secret
 *
 * The eight sums stay in one register of AVX-512 (two of AVX2) over a run of lines, and in memory
 * between runs, so that rows of many columns can take turns. A core that copies waits for memory;
 * the handful of instructions a line runs in that time.
 */
#include "pack/copy_sum.h"

#include "base/copy.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK_LINES	16u
#define SECRET_SCRAMBLE (sizeof(secret) - 64)
#define SECRET_LAST	(sizeof(secret) - 64 - 7)
#define SECRET_MERGE	11u
/* A line is asked for this far before its turn, counted over all columns: no prefetcher foresees
 * where the next row begins. */
#define AHEAD_GROUP_BYTES 8192u
#define AHEAD_BYTES	  1024u
/* Rows of one line go in bands that the first cache holds: a line is too short for a turn. */
#define BAND_BYTES 16384u

#define PRIME32_1 0x9e3779b1ull
#define PRIME32_2 0x85ebca77ull
#define PRIME32_3 0xc2b2ae3dull
#define PRIME64_1 0x9e3779b185ebca87ull
#define PRIME64_2 0xc2b2ae3d27d4eb4full
#define PRIME64_3 0x165667b19e3779f9ull
#define PRIME64_4 0x85ebca77c2b2ae63ull
#define PRIME64_5 0x27d4eb2f165667c5ull
#define PRIME_MIX 0x165667919e3779f9ull

/* The format's default secret. */
static const unsigned char secret[192] = {
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad,
	0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3,
	0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc,
	0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
	0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65,
	0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
	0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9,
	0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
	0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb,
	0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0,
	0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d,
	0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
	0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* A run of lines on its way: line i is summed from source + i * step, and stored is what lies
 * `shift` bytes after it, where lines of the target do not begin with those of the source. */
struct run {
	unsigned char *target; /* NULL: only the sum */
	const unsigned char *source;
	size_t shift, lines, step;
	size_t ahead; /* those so many bytes after them are next */
};

static uint64_t little(const unsigned char *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	word = __builtin_bswap64(word);
#endif
	return word;
}

static void add_line(uint64_t sums[8], const unsigned char *line, const unsigned char *keys)
{
	for (unsigned j = 0; j < 8; j += 2) {
		uint64_t even = little(line + 8 * j), odd = little(line + 8 * j + 8);
		uint64_t key = even ^ little(keys + 8 * j), next = odd ^ little(keys + 8 * j + 8);

		sums[j] += odd + (uint64_t)(uint32_t)key * (uint32_t)(key >> 32);
		sums[j + 1] += even + (uint64_t)(uint32_t)next * (uint32_t)(next >> 32);
	}
}

static void scramble(uint64_t sums[8])
{
	for (unsigned j = 0; j < 8; j++) {
		sums[j] ^= sums[j] >> 47;
		sums[j] ^= little(secret + SECRET_SCRAMBLE + 8 * j);
		sums[j] *= PRIME32_1;
	}
}

static void lines_portable(struct copy_sum *sum, const struct run *run, bool add, bool store)
{
	const unsigned char *source = run->source;
	size_t piece = add || run->step != COPY_LINE_BYTES ? 1 : run->lines;

	for (size_t i = 0; i < run->lines; i += piece, source += run->step) {
		if (store)
			memcpy(run->target + i * COPY_LINE_BYTES, source + run->shift,
			       piece * COPY_LINE_BYTES);
		if (!add)
			continue;
		add_line(sum->sums, source, secret + 8 * sum->line);
		if (++sum->line == BLOCK_LINES) {
			scramble(sum->sums);
			sum->line = 0;
		}
	}
}

/* The functions of one kernel, of its lines_NAME(). Each takes its columns in a loop of its own: a
 * row may be too short for a call. */
#define DEFINE_KERNEL(name, attributes)                                                         \
	attributes static inline void run_##name(struct copy_sum *sum, const struct run *run)   \
	{                                                                                       \
		if (!sum) {                                                                     \
			if (run->target)                                                        \
				lines_##name(NULL, run, false, true);                           \
			return;                                                                 \
		}                                                                               \
		if (run->target)                                                                \
			lines_##name(sum, run, true, true);                                     \
		else                                                                            \
			lines_##name(sum, run, true, false);                                    \
	}                                                                                       \
                                                                                                \
	attributes static void columns_##name(const struct copy_column *columns, size_t count,  \
					      const struct copy_grid *grid, uint64_t band_rows, \
					      size_t ahead)                                     \
	{                                                                                       \
		uint64_t from = grid->source, to = grid->target, n;                             \
		size_t step = grid->row_lines == 1 ? grid->stride_bytes : COPY_LINE_BYTES;      \
                                                                                                \
		for (uint64_t r = 0; r < grid->rows; r += n) {                                  \
			n = grid->rows - r < band_rows ? grid->rows - r : band_rows;            \
			for (size_t i = 0; i < count; i++) {                                    \
				const struct copy_column *column = &columns[i];                 \
				struct run run = {.source = column->source + from,              \
						  .lines = n * grid->row_lines,                 \
						  .step = step,                                 \
						  .ahead = ahead};                              \
                                                                                                \
				if (column->target_count)                                       \
					run.target = (unsigned char *)column->targets[0] + to;  \
				run_##name(column->sum, &run);                                  \
				for (size_t t = 1; t < column->target_count; t++) {             \
					run.target = (unsigned char *)column->targets[t] + to;  \
					run_##name(NULL, &run);                                 \
				}                                                               \
			}                                                                       \
			from += n * grid->stride_bytes;                                         \
			to += n * grid->row_lines * COPY_LINE_BYTES;                            \
		}                                                                               \
	}

DEFINE_KERNEL(portable, )

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET512 __attribute__((target("avx512f")))
#define INLINE512 TARGET512 __attribute__((always_inline)) static inline
#define TARGET256 __attribute__((target("avx2")))
#define INLINE256 TARGET256 __attribute__((always_inline)) static inline

INLINE512 __m512i add_512(__m512i sums, __m512i line, const unsigned char *keys)
{
	__m512i key = _mm512_xor_si512(line, _mm512_loadu_si512(keys));
	__m512i product = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));

	return _mm512_add_epi64(_mm512_add_epi64(sums, product),
				_mm512_shuffle_epi32(line, _MM_PERM_BADC));
}

INLINE512 __m512i scramble_512(__m512i sums)
{
	__m512i prime = _mm512_set1_epi64(PRIME32_1), high;

	sums = _mm512_xor_si512(sums, _mm512_srli_epi64(sums, 47));
	sums = _mm512_xor_si512(sums, _mm512_loadu_si512(secret + SECRET_SCRAMBLE));
	high = _mm512_mul_epu32(_mm512_srli_epi64(sums, 32), prime);
	return _mm512_add_epi64(_mm512_mul_epu32(sums, prime), _mm512_slli_epi64(high, 32));
}

/* `add` and `store` are constants where this is called. */
INLINE512 void lines_avx512(struct copy_sum *sum, const struct run *run, bool add, bool store)
{
	const unsigned char *source = run->source;
	unsigned char *target = run->target;
	__m512i sums = add ? _mm512_load_si512(sum->sums) : _mm512_setzero_si512();
	size_t line = add ? sum->line : 0, ahead = run->ahead, step = run->step, n;

	for (size_t left = run->lines; left; left -= n) {
		const unsigned char *keys = secret + 8 * line;
		size_t i = 0;

		n = add && left > BLOCK_LINES - line ? BLOCK_LINES - line : left;
		for (; i + 4 <= n; i += 4, keys += 32, source += 4 * step) {
			__m512i a = _mm512_loadu_si512(source);
			__m512i b = _mm512_loadu_si512(source + step);
			__m512i c = _mm512_loadu_si512(source + 2 * step);
			__m512i d = _mm512_loadu_si512(source + 3 * step);

			__builtin_prefetch(source + ahead);
			__builtin_prefetch(source + step + ahead);
			__builtin_prefetch(source + 2 * step + ahead);
			__builtin_prefetch(source + 3 * step + ahead);
			if (add) {
				sums = add_512(sums, a, keys);
				sums = add_512(sums, b, keys + 8);
				sums = add_512(sums, c, keys + 16);
				sums = add_512(sums, d, keys + 24);
			}
			if (store && run->shift) {
				a = _mm512_loadu_si512(source + run->shift);
				b = _mm512_loadu_si512(source + run->shift + 64);
				c = _mm512_loadu_si512(source + run->shift + 128);
				d = _mm512_loadu_si512(source + run->shift + 192);
			}
			if (store) {
				_mm512_stream_si512((void *)target, a);
				_mm512_stream_si512((void *)(target + 64), b);
				_mm512_stream_si512((void *)(target + 128), c);
				_mm512_stream_si512((void *)(target + 192), d);
				target += 256;
			}
		}
		for (; i < n; i++, keys += 8, source += step) {
			__m512i data = _mm512_loadu_si512(source);

			__builtin_prefetch(source + ahead);
			if (add)
				sums = add_512(sums, data, keys);
			if (store && run->shift)
				data = _mm512_loadu_si512(source + run->shift);
			if (store) {
				_mm512_stream_si512((void *)target, data);
				target += COPY_LINE_BYTES;
			}
		}
		line += n;
		if (add && line == BLOCK_LINES) {
			sums = scramble_512(sums);
			line = 0;
		}
	}
	if (add) {
		_mm512_store_si512(sum->sums, sums);
		sum->line = (uint32_t)line;
	}
}

INLINE256 __m256i add_256(__m256i sums, __m256i half, const unsigned char *keys)
{
	__m256i key = _mm256_xor_si256(half, _mm256_loadu_si256((const void *)keys));
	__m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));

	return _mm256_add_epi64(_mm256_add_epi64(sums, product), _mm256_shuffle_epi32(half, 0x4e));
}

INLINE256 __m256i scramble_256(__m256i sums, const unsigned char *keys)
{
	__m256i prime = _mm256_set1_epi64x(PRIME32_1), high;

	sums = _mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47));
	sums = _mm256_xor_si256(sums, _mm256_loadu_si256((const void *)keys));
	high = _mm256_mul_epu32(_mm256_srli_epi64(sums, 32), prime);
	return _mm256_add_epi64(_mm256_mul_epu32(sums, prime), _mm256_slli_epi64(high, 32));
}

INLINE256 void lines_avx2(struct copy_sum *sum, const struct run *run, bool add, bool store)
{
	const unsigned char *source = run->source;
	unsigned char *target = run->target;
	__m256i zero = _mm256_setzero_si256();
	__m256i low = add ? _mm256_load_si256((const void *)sum->sums) : zero;
	__m256i high = add ? _mm256_load_si256((const void *)(sum->sums + 4)) : zero;
	size_t line = add ? sum->line : 0, ahead = run->ahead, step = run->step, n;

	for (size_t left = run->lines; left; left -= n) {
		const unsigned char *keys = secret + 8 * line;

		n = add && left > BLOCK_LINES - line ? BLOCK_LINES - line : left;
		for (size_t i = 0; i < n; i++, keys += 8, source += step) {
			__m256i a = _mm256_loadu_si256((const void *)source);
			__m256i b = _mm256_loadu_si256((const void *)(source + 32));

			__builtin_prefetch(source + ahead);
			if (add) {
				low = add_256(low, a, keys);
				high = add_256(high, b, keys + 32);
			}
			if (store && run->shift) {
				a = _mm256_loadu_si256((const void *)(source + run->shift));
				b = _mm256_loadu_si256((const void *)(source + run->shift + 32));
			}
			if (store) {
				_mm256_stream_si256((void *)target, a);
				_mm256_stream_si256((void *)(target + 32), b);
				target += COPY_LINE_BYTES;
			}
		}
		line += n;
		if (add && line == BLOCK_LINES) {
			low = scramble_256(low, secret + SECRET_SCRAMBLE);
			high = scramble_256(high, secret + SECRET_SCRAMBLE + 32);
			line = 0;
		}
	}
	if (add) {
		_mm256_store_si256((void *)sum->sums, low);
		_mm256_store_si256((void *)(sum->sums + 4), high);
		sum->line = (uint32_t)line;
	}
}

DEFINE_KERNEL(avx512, TARGET512)
DEFINE_KERNEL(avx2, TARGET256)
#endif

/* In the order of enum copy_kernel. */
static const struct kernel {
	void (*run)(struct copy_sum *sum, const struct run *run);
	void (*columns)(const struct copy_column *columns, size_t count,
			const struct copy_grid *grid, uint64_t band_rows, size_t ahead);
} kernels[] = {
	{run_portable, columns_portable},
#if defined(__x86_64__)
	{run_avx2, columns_avx2},
	{run_avx512, columns_avx512},
#endif
};

void copy_columns(const struct copy_column *columns, size_t count, const struct copy_grid *grid)
{
	uint64_t row_bytes = count * grid->row_lines * COPY_LINE_BYTES;
	uint64_t band_rows, ahead = 0;

	if (!row_bytes)
		return;
	band_rows = grid->row_lines == 1 && row_bytes < BAND_BYTES ? BAND_BYTES / row_bytes : 1;
	if (grid->rows > 1)
		ahead = (AHEAD_GROUP_BYTES + row_bytes - 1) / row_bytes * grid->stride_bytes;
	kernels[copy_kernel()].columns(columns, count, grid, band_rows, ahead);
	for (size_t i = 0; i < count; i++)
		if (columns[i].sum)
			columns[i].sum->lines -= grid->rows * grid->row_lines;
}

void copy_sum_bytes(struct copy_sum *sum, void *target, const void *source, size_t bytes)
{
	const struct kernel *kernel = &kernels[copy_kernel()];
	size_t head = (size_t)(-(uintptr_t)target & (COPY_LINE_BYTES - 1)), added = 0, stored = 0;
	struct run run = {.source = source, .step = COPY_LINE_BYTES, .ahead = AHEAD_BYTES};
	unsigned char *to = target;

	if (sum) {
		added = bytes / COPY_LINE_BYTES < sum->lines ? bytes / COPY_LINE_BYTES : sum->lines;
		sum->lines -= added;
	}
	if (to) {
		head = head < bytes ? head : bytes;
		memcpy(to, source, head);
		stored = (bytes - head) / COPY_LINE_BYTES;
		run.target = to + head;
		run.shift = head;
	}
	run.lines = !to ? added : !sum ? stored : added < stored ? added : stored;
	kernel->run(sum, &run);
	if (to) { /* what is not a line of both */
		size_t whole = head + run.lines * COPY_LINE_BYTES;

		memcpy(to + whole, (const unsigned char *)source + whole, bytes - whole);
	}
	if (added > run.lines) { /* the head moves the stored lines */
		run.source += run.lines * COPY_LINE_BYTES;
		run.lines = added - run.lines;
		run.target = NULL;
		kernel->run(sum, &run);
	}
}

void copy_sum_begin(struct copy_sum *sum, uint64_t bytes)
{
	*sum = (struct copy_sum){
		.sums = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2,
			 PRIME64_5, PRIME32_1},
		.bytes = bytes,
		.lines = (bytes - 1) / COPY_LINE_BYTES,
	};
}

uint64_t copy_sum_end(struct copy_sum *sum, const void *last)
{
	uint64_t result = sum->bytes * PRIME64_1;

	add_line(sum->sums, last, secret + SECRET_LAST);
	for (unsigned j = 0; j < 8; j += 2) {
		const unsigned char *keys = secret + SECRET_MERGE + 8 * j;
		__extension__ unsigned __int128 product =
			(unsigned __int128)(sum->sums[j] ^ little(keys)) *
			(sum->sums[j + 1] ^ little(keys + 8));

		result += (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	result ^= result >> 37;
	result *= PRIME_MIX;
	return result ^ result >> 32;
}
