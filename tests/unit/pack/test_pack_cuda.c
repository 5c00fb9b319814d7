/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing by kernels against pack_run(): the same bytes and the same sums of every kind of piece. The kernels are run
 * as loops; with the word "device" they are launched on device 0, a mock's or a real one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "job/digest.h"
#include "model/content.h"
#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 300, VALUES_MAX = SIDE * SIDE, PARTS_MAX = 64, SHIFT = 16, TABLE_MAX = 20000 };

static _Alignas(64) unsigned char tensor[VALUES_MAX * 8 + SHIFT];
static float scales[VALUES_MAX];
static _Alignas(64) unsigned char want[VALUES_MAX * 8 + SHIFT], got[VALUES_MAX * 8 + SHIFT];
static unsigned char dense[VALUES_MAX * 8];
static uint64_t random_state;

static uint64_t below(uint64_t limit)
{
	return splitmix64(++random_state) % limit;
}

/* Any bits: NaN, infinities and subnormals of every dtype are among them. */
static void fill(void)
{
	for (size_t i = 0; i < sizeof(tensor) / 8; i++) {
		uint64_t bits = splitmix64(++random_state);

		memcpy(tensor + 8 * i, &bits, 8);
	}
	for (size_t i = 0; i < VALUES_MAX; i++)
		scales[i] = (float)(1 + below(1000)) * (below(20) ? 0x1p-9f : 0x1p120f) *
			    (below(50) ? 1.0f : -1.0f);
}

/* ---- what is launched may touch ---- */

struct allowed {
	const struct {
		const void *memory;
		uint64_t bytes;
		bool writable;
	} * ranges;
	size_t count;
	uint64_t outside;
};

static void *reach(void *context, uint64_t address, uint64_t bytes, bool write)
{
	static _Alignas(64) unsigned char nowhere[4096];
	struct allowed *allowed = context;

	for (size_t i = 0; i < allowed->count; i++) {
		uint64_t first = (uint64_t)(uintptr_t)allowed->ranges[i].memory;

		if (address >= first && address + bytes <= first + allowed->ranges[i].bytes &&
		    (!write || allowed->ranges[i].writable))
			return (void *)(uintptr_t)address;
	}
	allowed->outside++;
	return nowhere;
}

/* ---- device 0 ---- */

static struct {
	bool used;
	uint64_t tensor, scales, got, parts, bases, sums;
	cuda_kernel kernel;
	int processors;
} device;

static void done(int rc)
{
	if (rc)
		fail_msg("CUDA error %d", rc);
}

static uint64_t upload(const void *from, uint64_t bytes)
{
	uint64_t memory = 0;

	done(cuda_calls()->allocate(bytes, &memory));
	if (from)
		done(cuda_calls()->copy(memory, (uint64_t)(uintptr_t)from, bytes, NULL));
	return memory;
}

static int device_open(void **state)
{
	struct cuda_facts facts;
	struct error error;
	size_t bytes;

	(void)state;
	if (!device.used)
		return 0;
	if (cuda_ready(&error) || cuda_device_facts(0, &facts, &error) || cuda_enter(0, &error)) {
		print_error("%s\n", error.text);
		return -1;
	}
	device.processors = facts.processors;
	done(cuda_calls()->load(
		&(struct cuda_image){pack_cuda_image(&bytes), PACK_CUDA_KERNEL_NAME},
		&device.kernel));
	device.tensor = upload(tensor, sizeof(tensor));
	device.scales = upload(scales, sizeof(scales));
	device.got = upload(NULL, sizeof(got));
	device.parts = upload(NULL, TABLE_MAX * sizeof(struct pack_cuda_part));
	device.bases = upload(NULL, 2 * sizeof(uint64_t));
	device.sums = upload(NULL, TABLE_MAX * sizeof(uint64_t));
	return 0;
}

static int device_close(void **state)
{
	const uint64_t all[] = {device.tensor, device.scales, device.got,
				device.parts,  device.bases,  device.sums};

	(void)state;
	if (!device.kernel)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		cuda_calls()->release(all[i]);
	cuda_calls()->unload(device.kernel);
	cuda_leave();
	return 0;
}

/* Parts [first, first + count) of `all`; their targets lie in got, and come back there. */
static void device_launch(struct pack_cuda_part *parts, size_t all, uint32_t first, uint32_t count,
			  uint64_t shift, uint64_t *sums)
{
	const struct cuda_calls *calls = cuda_calls();
	uint64_t bases[2] = {device.tensor + shift, device.scales}, host = (uint64_t)(uintptr_t)got;
	struct pack_cuda_launch what =
		pack_cuda_launch_of(parts, first, count, device.parts, device.bases, device.sums);

	assert_true(all <= TABLE_MAX);
	for (size_t i = 0; i < all; i++) {
		parts[i].target = parts[i].target - host + device.got;
		if (parts[i].tensor == PACK_CUDA_NO_TENSOR && parts[i].work == PACK_CUDA_COPY)
			parts[i].offset += device.tensor - (uint64_t)(uintptr_t)tensor;
		if (parts[i].scales_target)
			parts[i].scales_target = parts[i].scales_target - host + device.got;
	}
	done(calls->copy(device.got, host, sizeof(got), NULL));
	done(calls->copy(device.parts, (uint64_t)(uintptr_t)parts, all * sizeof(*parts), NULL));
	done(calls->copy(device.bases, (uint64_t)(uintptr_t)bases, sizeof(bases), NULL));
	if (what.tiles)
		done(calls->launch(device.kernel,
				   (struct cuda_dim){pack_cuda_blocks(&what, device.processors),
						     PACK_CUDA_THREADS},
				   &what, NULL));
	done(calls->copy(host, device.got, sizeof(got), NULL));
	if (sums)
		done(calls->copy((uint64_t)(uintptr_t)sums, device.sums, all * sizeof(*sums),
				 NULL));
	done(calls->stream_synchronize(NULL));
}

/* The parts of one table, launched in so many blocks; how often something else was touched. */
static uint64_t launch(struct pack_cuda_part *parts, size_t count, uint64_t shift,
		       uint64_t target_bytes, uint64_t *sums)
{
	uint64_t bases[2] = {(uint64_t)(uintptr_t)(tensor + shift), (uint64_t)(uintptr_t)scales};
	const __typeof__(*((struct allowed *)NULL)->ranges) ranges[] = {
		{parts, count * sizeof(*parts), false},
		{bases, sizeof(bases), false},
		{tensor, sizeof(tensor), false},
		{scales, sizeof(scales), false},
		{got, target_bytes, true},
		{sums, count * sizeof(*sums), true},
	};
	struct allowed allowed = {ranges, ARRAY_SIZE(ranges), 0};
	struct pack_cuda_launch what;

	pack_cuda_table_finish(parts, count);
	if (device.used) {
		device_launch(parts, count, 0, (uint32_t)count, shift, sums);
		return 0;
	}
	what = pack_cuda_launch_of(parts, 0, (uint32_t)count, (uint64_t)(uintptr_t)parts,
				   (uint64_t)(uintptr_t)bases, (uint64_t)(uintptr_t)sums);
	pack_cuda_host_run(&what, 1 + (uint32_t)below(5), reach, &allowed);
	return allowed.outside;
}

/* ---- jobs ---- */

static struct pack_source source_of(enum dtype from, enum dtype to, struct transform transform)
{
	struct pack_source source = {.from = from,
				     .to = to,
				     .dims = 2,
				     .shape = {1 + below(SIDE), 1 + below(SIDE)},
				     .transform = transform};

	for (int d = 0; d < 2; d++) {
		source.src.lo[d] = below(source.shape[d]);
		source.src.hi[d] = source.src.lo[d] + 1 + below(source.shape[d] - source.src.lo[d]);
	}
	source.src.dims = 2;
	source.held_hi = source.shape[0];
	if (transform.from_rows)
		source.scales_hi =
			(source.shape[0] + transform.from_rows - 1) / transform.from_rows;
	return source;
}

/* Blocks of the parameter begin at their borders, and end there or with the tensor. */
static void align(struct pack_source *source)
{
	const uint64_t sides[2] = {source->transform.to_rows, source->transform.to_columns};

	for (int d = 0; d < 2; d++) {
		uint64_t hi = source->src.hi[d];

		source->src.lo[d] = source->src.lo[d] / sides[d] * sides[d];
		hi = (hi + sides[d] - 1) / sides[d] * sides[d];
		source->src.hi[d] = hi < source->shape[d] ? hi : source->shape[d];
	}
}

/* Runs of `bytes` in elements, with as much between them as a target of `room` has. */
static struct spread any_spread(uint64_t bytes, uint64_t element, uint64_t room)
{
	uint64_t count = bytes / element, run = 1 + below(64), extra;

	while (count % run)
		run--;
	if (below(3) == 0)
		run = count / run; /* long ones */
	extra = (room - bytes) / element / (count / run);
	return (struct spread){run * element, (run + (extra ? below(extra + 1) : 0)) * element};
}

/* Bytes that lie packed, to where such a piece has them. */
static void spread_to(unsigned char *to, const struct spread *spread, const void *packed,
		      uint64_t bytes)
{
	uint64_t n, place;

	for (uint64_t at = 0; at < bytes; at += n) {
		n = spread_next(spread, at, bytes - at, &place);
		memcpy(to + place, (const unsigned char *)packed + at, n);
	}
}

/* The piece cut at random, each cut a part of one table; half of them spread over their target. */
static void check(const struct pack_source *source)
{
	uint64_t shift = below(2) ? 0 : below(SHIFT), out = below(2) ? 0 : below(SHIFT), count = 0,
		 from = 0;
	struct pack_cuda_part parts[PARTS_MAX];
	void *target = dense;
	struct spread spread;
	uint64_t sums[PARTS_MAX];
	struct error error;
	struct pack pack;

	assert_int_equal(pack_init(&pack, source, &error), 0);
	assert_true(pack.bytes + out <= sizeof(want));
	spread = below(2) ? any_spread(pack.bytes, dtype_bytes(source->to), sizeof(want) - out)
			  : (struct spread){pack.bytes, pack.bytes};
	memset(want, 0xa5, sizeof(want));
	memset(got, 0xa5, sizeof(got));
	pack_run(&pack, &(struct pack_part){.data = tensor + shift,
					    .scales = source->transform.from_rows ? scales : NULL,
					    .bytes = pack.bytes,
					    .targets = &target,
					    .target_count = 1});
	copy_fence();
	spread_to(want + out, &spread, dense, pack.bytes);
	while (from < pack.bytes) {
		uint64_t left = (pack.bytes - from + pack.grain_bytes - 1) / pack.grain_bytes;
		uint64_t bytes =
			(count + 1 < PARTS_MAX / 2 ? 1 + below(left) : left) * pack.grain_bytes;

		bytes = bytes < pack.bytes - from ? bytes : pack.bytes - from;
		if (spread.run_bytes == pack.bytes) {
			pack_cuda_part_init(&parts[count], &pack, 0, 1, from, bytes,
					    (uint64_t)(uintptr_t)(got + out + from));
		} else {
			pack_cuda_part_init(&parts[count], &pack, 0, 1, from, bytes,
					    (uint64_t)(uintptr_t)(got + out));
			pack_cuda_part_spread(&parts[count], &spread, from);
		}
		count++;
		from += bytes;
	}
	assert_int_equal(launch(parts, count, shift, out + spread_span(&spread, pack.bytes), sums),
			 0);
	assert_memory_equal(got, want, sizeof(got));
}

/* Rows that units of 16 bytes fit, and eights of elements. */
static void fit_units(struct pack_source *source)
{
	for (int d = 0; d < 2; d++) {
		source->shape[d] = (source->shape[d] + 15) / 16 * 16 % 256 + 16;
		source->src.lo[d] = source->src.lo[d] / 16 * 16 % source->shape[d];
		source->src.hi[d] = source->shape[d];
		source->held_hi = source->shape[0];
	}
}

static void test_copy__of_any_box_and_part_has_the_processors_bytes(void **state)
{
	static const enum dtype types[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_I64};

	for (int i = 0; i < 400; i++) {
		struct pack_source source =
			source_of(types[i % 4], types[i % 4], (struct transform){0});

		if (i % 3 == 0)
			fit_units(&source);
		check(&source);
	}
}

static void test_convert__of_any_bits_has_the_processors_bits(void **state)
{
	static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

	for (int i = 0; i < 480; i++) {
		struct pack_source source = source_of(types[i % 3], types[(i + 1 + i / 3 % 2) % 3],
						      (struct transform){0});

		if (i / 6 % 2)
			fit_units(&source);
		check(&source);
	}
}

static void test_dequantise__multiplies_each_element_by_the_scale_of_its_block(void **state)
{
	static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
	static const uint32_t sides[] = {1, 3, 64, 128};

	for (int i = 0; i < 120; i++) {
		struct pack_source source =
			source_of(DTYPE_F8_E4M3, types[i % 3],
				  (struct transform){.from_rows = sides[i / 3 % 4],
						     .from_columns = sides[i / 12 % 4]});

		check(&source);
	}
}

static void test_transpose__also_of_a_part_that_begins_inside_of_a_column(void **state)
{
	for (int i = 0; i < 120; i++) {
		struct pack_source source =
			source_of(i % 2 ? DTYPE_BF16 : DTYPE_F32, i % 3 ? DTYPE_BF16 : DTYPE_F32,
				  (struct transform){.part = TRANSFORM_TRANSPOSED});

		check(&source);
	}
}

static void test_quantise__values_and_scales_are_the_processors(void **state)
{
	static const uint32_t sides[] = {1, 5, 64, 128, 300};
	static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3};

	for (int i = 0; i < 400; i++) {
		struct transform transform = {.to_rows = sides[i / 4 % 5],
					      .to_columns = sides[i / 20 % 5]};
		struct pack_source source;

		if (types[i % 4] == DTYPE_F8_E4M3)
			transform.from_rows = sides[i / 7 % 4],
			transform.from_columns = sides[i / 5 % 4];
		if (i / 100 % 2)
			transform.part = TRANSFORM_SCALES;
		source =
			source_of(types[i % 4], i / 100 % 2 ? DTYPE_F32 : DTYPE_F8_E4M3, transform);
		if (i / 8 % 2 && !transform.from_rows)
			fit_units(&source);
		align(&source);
		check(&source);
	}
}

static void test_merged__values_bring_their_scales(void **state)
{
	struct transform transform = {.to_rows = 128, .to_columns = 128};
	struct pack_source source = source_of(DTYPE_BF16, DTYPE_F8_E4M3, transform);
	uint64_t scale_bytes, value_bytes, at, sums[2];
	struct pack_cuda_part parts[2];
	struct error error;
	struct pack pack, values;
	void *target = want;

	source.shape[0] = 300, source.shape[1] = 257;
	source.src = (struct box){.dims = 2, .hi = {300, 257}};
	source.held_hi = 300;
	assert_int_equal(pack_init(&pack, &source, &error), 0);
	values = pack;
	value_bytes = pack.bytes;
	pack_cuda_part_init(&parts[0], &pack, 0, 1, 0, pack.bytes, (uint64_t)(uintptr_t)got);
	pack_run(&pack, &(struct pack_part){.data = tensor,
					    .bytes = pack.bytes,
					    .targets = &target,
					    .target_count = 1});
	source.transform.part = TRANSFORM_SCALES;
	source.to = DTYPE_F32;
	assert_int_equal(pack_init(&pack, &source, &error), 0);
	scale_bytes = pack.bytes;
	at = (value_bytes + 63) / 64 * 64;
	target = want + at;
	pack_run(&pack, &(struct pack_part){.data = tensor,
					    .bytes = pack.bytes,
					    .targets = &target,
					    .target_count = 1});
	copy_fence();
	pack_cuda_part_init(&parts[1], &pack, 0, 1, 0, pack.bytes, (uint64_t)(uintptr_t)(got + at));
	pack_cuda_part_merge(&parts[0], &parts[1]);
	assert_int_equal(launch(parts, 1, 0, at + scale_bytes, sums), 0);
	assert_memory_equal(got, want, value_bytes);
	assert_memory_equal(got + at, want + at, scale_bytes);
	/* each in runs of its own */
	memset(dense, 0xa5, sizeof(dense));
	memset(got, 0xa5, sizeof(got));
	for (int i = 0; i < 2; i++) {
		const struct spread spread = {i ? 12 : 257, i ? 20 : 300};

		pack_cuda_part_init(&parts[i], i ? &pack : &values, 0, 1, 0,
				    i ? scale_bytes : value_bytes,
				    (uint64_t)(uintptr_t)(got + (i ? 2 * at : 0)));
		pack_cuda_part_spread(&parts[i], &spread, 0);
		spread_to(dense + (i ? 2 * at : 0), &spread, want + (i ? at : 0),
			  i ? scale_bytes : value_bytes);
	}
	pack_cuda_part_merge(&parts[0], &parts[1]);
	assert_int_equal(launch(parts, 1, 0, sizeof(got), sums), 0);
	assert_memory_equal(got, dense, sizeof(dense));
}

static void test_sum__of_every_length_is_checksum64(void **state)
{
	enum { LENGTHS = 2200 };
	static struct pack_cuda_part parts[LENGTHS + 6];
	static uint64_t sums[LENGTHS + 6];
	static const uint32_t large[] = {32768,	 32769,	     65536 + 63,
					 100000, 299 * 1024, 512 * 1024 + 1};
	uint64_t count = 0, shift = 5;

	memcpy(got, tensor, sizeof(got));
	for (; count < LENGTHS; count++)
		pack_cuda_sum_init(&parts[count],
				   (uint64_t)(uintptr_t)(got + (count % 3 ? shift : 0)), count,
				   (uint32_t)count);
	for (size_t i = 0; i < ARRAY_SIZE(large); i++, count++)
		pack_cuda_sum_init(&parts[count], (uint64_t)(uintptr_t)got, large[i],
				   (uint32_t)count);
	assert_int_equal(launch(parts, count, 0, sizeof(got), sums), 0);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(sums[i], checksum64(got + (i < LENGTHS && i % 3 ? shift : 0),
						     parts[i].bytes));
}

/* What lands: packed bytes, cut anywhere, to runs of any length; and the sums of blocks of them where they are then. */
static void test_runs__are_written_and_summed_also_from_their_middle(void **state)
{
	static const uint64_t lengths[] = {1, 3, 8, 9, 16, 100, 128, 240, 241, 1024, 5000};
	struct pack_cuda_part parts[PARTS_MAX];
	uint64_t sums[PARTS_MAX];

	for (int i = 0; i < 300; i++) {
		uint64_t unit = UINT64_C(1) << below(5), shift = below(2) * below(SHIFT);
		uint64_t bytes = unit * (1 + below(i % 2 ? 40 : 20000)), end = 0, count = 0;
		struct spread spread = any_spread(bytes, unit, sizeof(got));

		memset(want, 0xa5, sizeof(want));
		memset(got, 0xa5, sizeof(got));
		spread_to(want, &spread, tensor + shift, bytes);
		for (uint64_t at = 0; at < bytes; at = end, count++) {
			end = count + 1 < PARTS_MAX ? at + 1 + below(bytes - at) : bytes;
			pack_cuda_copy_init(&parts[count],
					    (uint64_t)(uintptr_t)(tensor + shift + at), end - at,
					    (uint64_t)(uintptr_t)got);
			pack_cuda_part_spread(&parts[count], &spread, at);
		}
		assert_int_equal(launch(parts, count, 0, spread_span(&spread, bytes), sums), 0);
		assert_memory_equal(got, want, sizeof(got));
		for (count = 0; count < PARTS_MAX; count++) {
			uint64_t at = below(bytes), most = lengths[below(ARRAY_SIZE(lengths))];

			pack_cuda_sum_init(&parts[count], (uint64_t)(uintptr_t)got,
					   most < bytes - at ? most : bytes - at, (uint32_t)count);
			parts[count].from = at;
			pack_cuda_part_spread(&parts[count], &spread, at);
		}
		assert_int_equal(launch(parts, count, 0, spread_span(&spread, bytes), sums), 0);
		while (count--)
			assert_int_equal(sums[count], checksum64(tensor + shift + parts[count].from,
								 parts[count].bytes));
	}
}

static void test_table__of_many_parts_and_any_range_of_it(void **state)
{
	enum { PARTS = 20000, BYTES = 12 };
	static struct pack_cuda_part parts[PARTS];
	uint64_t base = (uint64_t)(uintptr_t)tensor;
	struct pack_source source = {.from = DTYPE_U8,
				     .to = DTYPE_U8,
				     .dims = 1,
				     .shape = {sizeof(tensor)},
				     .held_hi = sizeof(tensor)};
	struct pack_cuda_launch what;
	struct error error;
	struct pack pack;

	for (int i = 0; i < PARTS; i++) {
		source.src = (struct box){
			.dims = 1, .lo = {3 * (uint64_t)i}, .hi = {3 * (uint64_t)i + BYTES}};
		assert_int_equal(pack_init(&pack, &source, &error), 0);
		pack_cuda_part_init(&parts[i], &pack, 0, 0, 0, i % 7 ? BYTES : 0,
				    (uint64_t)(uintptr_t)(got + i * BYTES));
	}
	pack_cuda_table_finish(parts, PARTS);
	memset(got, 0, sizeof(got));
	what = pack_cuda_launch_of(parts, 5000, 10000, (uint64_t)(uintptr_t)parts,
				   (uint64_t)(uintptr_t)&base, 0);
	if (device.used)
		device_launch(parts, PARTS, 5000, 10000, 0, NULL);
	else
		pack_cuda_host_run(&what, pack_cuda_blocks(&what, 4), NULL, NULL);
	for (int i = 0; i < PARTS; i++) {
		static const unsigned char none[BYTES];
		bool packed = i >= 5000 && i < 15000 && i % 7;

		assert_memory_equal(got + i * BYTES, packed ? tensor + 3 * i : none, BYTES);
	}
}

static void test_reach__a_target_one_byte_too_far_is_noticed(void **state)
{
	struct pack_source source = {.from = DTYPE_U8,
				     .to = DTYPE_U8,
				     .dims = 1,
				     .shape = {100000},
				     .src = {.dims = 1, .hi = {100000}},
				     .held_hi = 100000};
	struct pack_cuda_part part;
	struct error error;
	uint64_t sums[1];
	struct pack pack;

	if (device.used)
		skip(); /* nobody looks on there */
	assert_int_equal(pack_init(&pack, &source, &error), 0);
	pack_cuda_part_init(&part, &pack, 0, 0, 0, pack.bytes, (uint64_t)(uintptr_t)got);
	assert_int_equal(launch(&part, 1, 0, pack.bytes, sums), 0);
	part.target++;
	assert_true(launch(&part, 1, 0, pack.bytes, sums) > 0);
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy__of_any_box_and_part_has_the_processors_bytes),
		cmocka_unit_test(test_convert__of_any_bits_has_the_processors_bits),
		cmocka_unit_test(
			test_dequantise__multiplies_each_element_by_the_scale_of_its_block),
		cmocka_unit_test(test_transpose__also_of_a_part_that_begins_inside_of_a_column),
		cmocka_unit_test(test_quantise__values_and_scales_are_the_processors),
		cmocka_unit_test(test_merged__values_bring_their_scales),
		cmocka_unit_test(test_sum__of_every_length_is_checksum64),
		cmocka_unit_test(test_runs__are_written_and_summed_also_from_their_middle),
		cmocka_unit_test(test_table__of_many_parts_and_any_range_of_it),
		cmocka_unit_test(test_reach__a_target_one_byte_too_far_is_noticed),
	};

	device.used = count > 1 && strcmp(words[1], "device") == 0;
	fill();
	return cmocka_run_group_tests(tests, device_open, device_close);
}
