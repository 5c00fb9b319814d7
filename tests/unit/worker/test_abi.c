/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs and libraries of different age: structs that are shorter or longer than here, sizes that are
 * none, and memory that is not the host's.
 */
#include "tests/unit/worker/worker_rig.h"

#include "base/array.h"
#include "worker/api/abi.h"

/* A struct of a caller whose header has `more` bytes behind ours. */
#define LONGER(type, more)                                  \
	union {                                             \
		type known;                                 \
		unsigned char bytes[sizeof(type) + (more)]; \
	}

static const weft_options options = {
	.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_INFERENCE};

static weft_worker *open_rank(int own_memory)
{
	weft_options own = options;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;

	own.own_memory = own_memory;
	rig_ok(weft_open(&worker, &own, &error), &error);
	return worker;
}

static void test_size__that_was_forgotten_is_named_for_every_struct(void **state)
{
	static const struct {
		enum abi_struct type;
		const char *name;
	} rows[] = {
		{ABI_LAUNCH, "weft_launch"},
		{ABI_OPTIONS, "weft_options"},
		{ABI_MEMORY, "weft_memory"},
		{ABI_TENSOR, "weft_tensor"},
		{ABI_PARAM, "weft_param"},
		{ABI_TRANSFORM, "weft_transform"},
		{ABI_SLICE, "weft_slice"},
		{ABI_TENSOR_VIEW, "weft_tensor_view"},
		{ABI_PARAM_VIEW, "weft_param_view"},
		{ABI_HOLDING, "weft_holding"},
		{ABI_HOLDING_VIEW, "weft_holding_view"},
		{ABI_PLAN_VIEW, "weft_plan_view"},
		{ABI_STATS, "weft_stats"},
		{ABI_LOSS, "weft_loss"},
		{ABI_ERROR, "weft_error"},
	};
	static const size_t wrong[] = {0, 1, sizeof(size_t), 4097, SIZE_MAX};

	(void)state;
	assert_int_equal(ARRAY_SIZE(rows), ABI_COUNT);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t k = 0; k < ARRAY_SIZE(wrong); k++) {
			union {
				size_t size;
				unsigned char bytes[4096];
			} given = {.size = wrong[k]}, ours;
			struct error error;

			assert_int_equal(abi_take(rows[i].type, "call", &given, &ours, &error),
					 -ERROR_USAGE);
			assert_non_null(strstr(error.text, rows[i].name));
			assert_non_null(strstr(error.text, "sizeof"));
			assert_int_equal(abi_take(rows[i].type, "call", NULL, &ours, &error),
					 -ERROR_USAGE);
			assert_non_null(strstr(error.text, "NULL"));
		}
}

static void test_open__refuses_an_option_that_it_does_not_know_and_takes_its_zero(void **state)
{
	LONGER(weft_options, 24) given = {.known = options};
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = NULL;
	char where[32];

	(void)state;
	given.known.size = sizeof(given);
	given.bytes[sizeof(weft_options) + 17] = 3;
	assert_int_equal(weft_open(&worker, &given.known, &error), -WEFT_E_USAGE);
	assert_null(worker);
	snprintf(where, sizeof(where), "byte %zu of", sizeof(weft_options) + 17);
	assert_non_null(strstr(error.text, where));
	assert_non_null(strstr(error.text, "weft_options is 0x03"));
	snprintf(where, sizeof(where), "%zu bytes, here it has %zu", sizeof(given),
		 sizeof(weft_options));
	assert_non_null(strstr(error.text, where));
	given.bytes[sizeof(weft_options) + 17] = 0;
	rig_ok(weft_open(&worker, &given.known, &error), &error);
	weft_close(&worker);
}

static void test_role__of_0_is_none(void **state)
{
	weft_options given = options;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;

	(void)state;
	for (int role = -1; role <= 3; role++) {
		given.role = (enum weft_role)role;
		if (role == WEFT_TRAINER || role == WEFT_INFERENCE)
			continue;
		assert_int_equal(weft_open(&worker, &given, &error), -WEFT_E_USAGE);
		assert_non_null(strstr(error.text, "WEFT_TRAINER (1) or WEFT_INFERENCE (2)"));
	}
}

static void test_array__is_walked_by_the_callers_stride(void **state)
{
	LONGER(weft_param, 16)
	live[2] = {
		{.known = {sizeof(live[0]), "a", "F32", 1, {4}, NULL}},
		{.known = {sizeof(live[0]), "b", "F32", 1, {4}, NULL}},
	};
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = open_rank(0);

	(void)state;
	for (int i = 0; i < 2; i++)
		rig_ok(weft_declare_param(worker, &live[i].known, NULL, &error), &error);
	rig_ok(weft_compare_params(worker, &live[0].known, 2, sizeof(live[0]), &error), &error);
	live[1].bytes[sizeof(weft_param) + 1] = 1;
	assert_int_equal(weft_compare_params(worker, &live[0].known, 2, sizeof(live[0]), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "element 1"));
	/* the size of one struct and the stride of another */
	assert_int_equal(weft_compare_params(worker, &live[0].known, 2, sizeof(weft_param), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "more than the stride"));
	assert_int_equal(weft_compare_params(worker, &live[0].known, 2, 0, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "stride of the array of weft_param is 0"));
	weft_close(&worker);
}

static void test_view__is_filled_as_far_as_the_caller_reaches_and_zeroed_beyond(void **state)
{
	const weft_param param = {sizeof(param), "a", "F32", 1, {4}, NULL};
	LONGER(weft_param_view, 16) longer;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = open_rank(0);
	weft_param_view view = {.size = 0};

	(void)state;
	rig_ok(weft_declare_param(worker, &param, NULL, &error), &error);
	memset(&longer, 0xee, sizeof(longer));
	longer.known.size = sizeof(longer);
	rig_ok(weft_param_at(worker, 0, &longer.known, &error), &error);
	assert_int_equal(longer.known.size, sizeof(longer));
	assert_int_equal(longer.known.bytes, 16);
	for (size_t i = sizeof(weft_param_view); i < sizeof(longer); i++)
		assert_int_equal(longer.bytes[i], 0);
	assert_int_equal(weft_param_at(worker, 0, &view, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "size of the weft_param_view is 0"));
	assert_int_equal(weft_param_at(worker, 1, &longer.known, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "parameter 1; 1 are declared"));
	weft_close(&worker);
}

static void test_error__of_no_size_is_not_written_to(void **state)
{
	weft_error error;

	(void)state;
	memset(&error, 0, sizeof(error));
	assert_int_equal(weft_open(NULL, &options, &error), -WEFT_E_USAGE);
	assert_int_equal(error.code, 0);
	assert_int_equal(error.text[0], 0);
}

static void test_memory__of_a_device_is_refused_by_name_wherever_it_is_passed(void **state)
{
	weft_memory cuda = {.size = sizeof(cuda),
			    .kind = WEFT_MEMORY_CUDA,
			    .device = 3,
			    .pointer = &cuda,
			    .bytes = 16};
	weft_param param = {sizeof(param), "a", "F32", 1, {4}, &cuda};
	weft_options trains = options;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *rank = open_rank(1), *trainer;

	(void)state;
	trains.role = WEFT_TRAINER;
	rig_ok(weft_open(&trainer, &trains, &error), &error);
	for (int call = 0; call < 3; call++) {
		int rc;

		if (call == 1) { /* a parameter for bind */
			param.memory = NULL;
			rig_ok(weft_declare_param(rank, &param, NULL, &error), &error);
		}
		rc = call == 0	 ? weft_declare_param(rank, &param, NULL, &error)
		     : call == 1 ? weft_param_bind(rank, 0, &cuda, &error)
				 : weft_source_register(trainer, &cuda, &error);
		assert_int_equal(rc, -WEFT_E_UNSUPPORTED);
		assert_non_null(strstr(error.text, "device memory (kind cuda, device 3, 16 bytes"));
		assert_non_null(strstr(error.text, "opened for host memory"));
	}
	weft_close(&trainer);
	weft_close(&rank);
}

static void test_memory__says_what_kind_it_is_and_is_large_enough(void **state)
{
	unsigned char bytes[16];
	weft_memory memory = weft_host_memory(bytes, 15);
	const weft_param param = {sizeof(param), "a", "F32", 1, {4}, &memory};
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = open_rank(1);

	(void)state;
	assert_int_equal(weft_declare_param(worker, &param, NULL, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "parameter a needs 16 bytes, given 15"));
	memory.bytes = 16;
	memory.kind = 0;
	assert_int_equal(weft_declare_param(worker, &param, NULL, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "kind is 0"));
	memory.kind = WEFT_MEMORY_HOST;
	memory.stream = bytes;
	assert_int_equal(weft_declare_param(worker, &param, NULL, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "stream"));
	memory.stream = NULL;
	rig_ok(weft_declare_param(worker, &param, NULL, &error), &error);
	weft_close(&worker);
}

static void test_write__judges_the_memory_of_each_tensor(void **state)
{
	const struct rig_options plain = {.trainers = 1, .ranks = 1};
	struct rig *rig = calloc(1, sizeof(*rig));
	weft_memory memory[RIG_TENSORS + 1];
	weft_error error = WEFT_ERROR_INIT;
	weft_slice slice = WEFT_SLICE_INIT;
	weft_worker *trainer;

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &plain);
	trainer = rig->trainers[0];
	rig_fill(rig, 1);
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		memory[t] = weft_host_memory(rig->tensors[t], rig_bytes[t]);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(trainer, 1, &error), &error);
	assert_int_equal(weft_update_write_all(trainer, memory, 2, sizeof(memory[0]), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "memory of 2 tensors; 3 are declared"));
	memory[1].bytes--;
	assert_int_equal(weft_update_write_all(trainer, memory, 3, sizeof(memory[0]), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "tensor o has 480 bytes here, given 479"));
	memory[1].bytes++;
	memory[1].kind = WEFT_MEMORY_CUDA;
	assert_int_equal(weft_update_write_all(trainer, memory, 3, sizeof(memory[0]), &error),
			 -WEFT_E_UNSUPPORTED);
	assert_int_equal(weft_update_write(trainer, 1, &memory[1], &error), -WEFT_E_UNSUPPORTED);
	slice.name = "o";
	slice.memory = &memory[1];
	assert_int_equal(weft_update_write_bucket(trainer, &slice, 1, sizeof(slice), &error),
			 -WEFT_E_UNSUPPORTED);
	memory[1].kind = WEFT_MEMORY_HOST;
	rig_ok(weft_update_write_all(trainer, memory, 3, sizeof(memory[0]), &error), &error);
	rig_ok(weft_update_end(trainer, &error), &error);
	rig_wait_end(rig, 0);
	rig_check(rig, 0, 1);
	rig_close(rig);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size__that_was_forgotten_is_named_for_every_struct),
		cmocka_unit_test(
			test_open__refuses_an_option_that_it_does_not_know_and_takes_its_zero),
		cmocka_unit_test(test_role__of_0_is_none),
		cmocka_unit_test(test_array__is_walked_by_the_callers_stride),
		cmocka_unit_test(
			test_view__is_filled_as_far_as_the_caller_reaches_and_zeroed_beyond),
		cmocka_unit_test(test_error__of_no_size_is_not_written_to),
		cmocka_unit_test(test_memory__of_a_device_is_refused_by_name_wherever_it_is_passed),
		cmocka_unit_test(test_memory__says_what_kind_it_is_and_is_large_enough),
		cmocka_unit_test(test_write__judges_the_memory_of_each_tensor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
