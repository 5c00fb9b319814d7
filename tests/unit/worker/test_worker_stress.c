/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's update engine under stress: plans drawn from a seed, calls from four threads in any
 * order, completions late and in any order between peers, versions given up in between. Every byte
 * of every parameter is compared after each version.
 *
 *   w0..w9  [rows,cols] F32   each rank takes rows, columns, columns that another takes too, or all
 *   v0..v3  F8_E4M3 in blocks, with scales s0..s3: each rank takes it as BF16, made from both
 *
 * Ranks are reached through the replica, or are mapped, or some are this and others that. With
 * arguments: plans FIRST to FIRST + COUNT.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/mock/mock.h"

#define PLAIN	10
#define PAIRS	4
#define TENSORS (PLAIN + 2 * PAIRS)
#define WRITERS 4
#define BLOCK	4u
#define SIDE	16u /* of a weight in blocks */

static uint64_t seed, first_plan, plans = 15;
static bool columns_only;

static uint32_t draw(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 20) % below);
}

enum cut { CUT_ALL, CUT_ROWS, CUT_COLUMNS, CUT_SHARED, CUTS };

struct stress {
	struct rig rig;
	weft_tensor tensors[TENSORS];
	char names[TENSORS][8];
	uint64_t bytes[TENSORS];
	enum cut cuts[PLAIN];
	unsigned char *data[TENSORS];
	pthread_mutex_t lock;
	uint32_t left[TENSORS], left_count; /* to be written in this version */
	uint64_t version;
	bool frees; /* memory is the writer's again after his call */
	bool drains;
	bool writes_all; /* what is left, beside the others */
};

static bool is_weight(uint32_t t)
{
	return t >= PLAIN && t < PLAIN + PAIRS;
}

static unsigned char byte_of(uint64_t version, uint32_t t, uint64_t at)
{
	/* finite F8_E4M3 */
	return (unsigned char)(rig_byte(version, t, at) & (is_weight(t) ? 0x77 : 0xff));
}

static float scale_of(uint64_t version, uint32_t pair, uint64_t at)
{
	return (float)(1u << ((version + pair + at) % 5));
}

static void make_tensors(struct stress *stress)
{
	for (uint32_t t = 0; t < TENSORS; t++) {
		bool scales = t >= PLAIN + PAIRS;
		weft_tensor *tensor = &stress->tensors[t];

		snprintf(stress->names[t], sizeof(stress->names[t]), "t%u", t);
		*tensor = (weft_tensor){sizeof(weft_tensor),
					stress->names[t],
					is_weight(t) ? "F8_E4M3" : "F32",
					2,
					{0}};
		tensor->shape[0] = t < PLAIN ? 12 * (1 + draw(12)) : scales ? SIDE / BLOCK : SIDE;
		tensor->shape[1] = t < PLAIN ? 12 * (1 + draw(12)) : scales ? SIDE / BLOCK : SIDE;
		stress->bytes[t] = tensor->shape[0] * tensor->shape[1] * (is_weight(t) ? 1 : 4);
		stress->data[t] = malloc(stress->bytes[t]);
		if (t < PLAIN)
			stress->cuts[t] = columns_only ? CUT_COLUMNS : (enum cut)draw(CUTS);
	}
}

static void fill(struct stress *stress, uint32_t t)
{
	for (uint64_t i = 0; i < stress->bytes[t]; i++)
		stress->data[t][i] = byte_of(stress->version, t, i);
	for (uint64_t i = 0; t >= PLAIN + PAIRS && i < stress->bytes[t] / 4; i++)
		((float *)(void *)stress->data[t])[i] =
			scale_of(stress->version, t - PLAIN - PAIRS, i);
}

static void box_of(const struct stress *stress, uint32_t t, uint32_t rank, uint64_t *lo,
		   uint64_t *hi)
{
	bool shared = t < PLAIN && stress->cuts[t] == CUT_SHARED;
	uint32_t ranks = stress->rig.options.ranks;

	if (shared) {
		ranks = (ranks + 1) / 2;
		rank %= ranks;
	}
	for (uint32_t d = 0; d < 2; d++) {
		uint64_t part = stress->tensors[t].shape[d] / ranks;
		bool cut = t < PLAIN &&
			   ((shared && d) || stress->cuts[t] == (d ? CUT_COLUMNS : CUT_ROWS));

		lo[d] = cut ? rank * part : 0;
		hi[d] = cut ? lo[d] + part : stress->tensors[t].shape[d];
	}
}

static void declare_rank(struct stress *stress, uint32_t rank)
{
	const weft_transform transform = {
		.size = sizeof(transform), .from_rows = BLOCK, .from_columns = BLOCK};
	weft_worker *worker = stress->rig.ranks[rank];

	for (uint32_t t = 0; t < PLAIN + PAIRS; t++) {
		weft_param param = {sizeof(weft_param),
				    stress->names[t],
				    is_weight(t) ? "BF16" : "F32",
				    2,
				    {0},
				    NULL};
		uint64_t lo[2], hi[2];
		weft_error error = WEFT_ERROR_INIT;
		uint32_t id;

		box_of(stress, t, rank, lo, hi);
		param.shape[0] = hi[0] - lo[0];
		param.shape[1] = hi[1] - lo[1];
		rig_ok(weft_declare_param(worker, &param, &id, &error), &error);
		if (is_weight(t))
			rig_ok(weft_declare_transformed_piece(worker, &stress->tensors[t], lo, hi,
							      id, 0, &transform,
							      &stress->tensors[t + PAIRS], &error),
			       &error);
		else
			rig_ok(weft_declare_piece(worker, &stress->tensors[t], lo, hi, id, 0,
						  &error),
			       &error);
	}
}

static void register_sources(struct stress *stress)
{
	for (uint32_t t = 0; t < TENSORS; t++) {
		weft_memory memory = weft_host_memory(stress->data[t], stress->bytes[t]);
		weft_error error = WEFT_ERROR_INIT;

		rig_ok(weft_source_register(stress->rig.trainers[0], &memory, &error), &error);
	}
}

/* A bit a rank: mapped; and, of two transports, out of the first one's reach. A trainer maps what it can. */
static void open_stress(struct stress *stress, const struct rig_options *options,
			struct mock_options mock, uint32_t mapped, uint32_t beyond, bool registered)
{
	struct rig *rig = &stress->rig;
	uint32_t count = 0;

	memset(stress, 0, sizeof(*stress));
	pthread_mutex_init(&stress->lock, NULL);
	rig->options = *options;
	make_tensors(stress);
	rig_start_controller(rig);
	mock.mapped = mapped != 0;
	mock_options_default(&mock);
	rig->trainers[0] = rig_open_worker(rig, WEFT_TRAINER, 0);
	for (uint32_t t = 0; t < TENSORS; t++)
		assert_int_equal(weft_declare_tensor(rig->trainers[0], &stress->tensors[t], t, 0,
						     stress->tensors[t].shape[0], NULL, NULL),
				 0);
	if (registered)
		register_sources(stress);
	rig->joins[count++].worker = rig->trainers[0];
	for (uint32_t i = 0; i < options->ranks; i++) {
		mock.mapped = mapped >> i & 1;
		mock.reach = beyond >> i & 1 ? "another process" : NULL;
		rig->ranks[i] = rig_open_worker(rig, WEFT_INFERENCE, i);
		declare_rank(stress, i);
		rig->joins[count++].worker = rig->ranks[i];
	}
	for (uint32_t i = 0; i < count; i++)
		pthread_create(&rig->joins[i].thread, NULL, rig_join_thread, &rig->joins[i]);
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(rig->joins[i].thread, NULL);
		rig_ok(rig->joins[i].rc, &rig->joins[i].error);
	}
	mock_options_default(NULL);
}

static void close_stress(struct stress *stress)
{
	rig_close(&stress->rig);
	for (uint32_t t = 0; t < TENSORS; t++)
		free(stress->data[t]);
	pthread_mutex_destroy(&stress->lock);
	free(stress);
}

/* Up to three tensors that nobody has written yet. */
static uint32_t take(struct stress *stress, uint32_t *taken)
{
	uint32_t count = 0, wanted;

	pthread_mutex_lock(&stress->lock);
	wanted = 1 + draw(3);
	while (count < wanted && stress->left_count) {
		uint32_t at = draw(stress->left_count);

		taken[count++] = stress->left[at];
		stress->left[at] = stress->left[--stress->left_count];
	}
	pthread_mutex_unlock(&stress->lock);
	return count;
}

static void write_some(struct stress *stress, const uint32_t *taken, uint32_t count)
{
	weft_worker *worker = stress->rig.trainers[0];
	weft_slice slices[3];
	weft_memory memory[3];
	weft_error error = WEFT_ERROR_INIT;

	for (uint32_t i = 0; i < count; i++) {
		const weft_tensor *tensor = &stress->tensors[taken[i]];

		memory[i] = weft_host_memory(stress->data[taken[i]], stress->bytes[taken[i]]);
		slices[i] = (weft_slice){.size = sizeof(weft_slice),
					 .name = tensor->name,
					 .dtype = tensor->dtype,
					 .dims = 2,
					 .memory = &memory[i]};
		memcpy(slices[i].shape, tensor->shape, sizeof(tensor->shape));
	}
	if (count > 1)
		rig_ok(weft_update_write_bucket(worker, slices, count, sizeof(weft_slice), &error),
		       &error);
	else
		rig_ok(weft_update_write(worker, taken[0], &memory[0], &error), &error);
}

/* Everything that nobody has taken. What others have taken is theirs to give, which they may not
 * have done yet. */
static void write_left(struct stress *stress)
{
	const void *data[TENSORS] = {0};
	weft_error error = WEFT_ERROR_INIT;
	int rc;

	pthread_mutex_lock(&stress->lock);
	while (stress->left_count) {
		uint32_t t = stress->left[--stress->left_count];

		data[t] = stress->data[t];
	}
	pthread_mutex_unlock(&stress->lock);
	while ((rc = host_write_all(stress->rig.trainers[0], data, &error)) == -WEFT_E_USAGE)
		sched_yield();
	rig_ok(rc, &error);
}

static void *writer(void *context)
{
	struct stress *stress = context;
	uint32_t taken[3], count;
	weft_stats stats = WEFT_STATS_INIT;
	bool all;

	pthread_mutex_lock(&stress->lock);
	all = stress->writes_all && stress->left_count < TENSORS;
	stress->writes_all &= !all;
	pthread_mutex_unlock(&stress->lock);
	if (all)
		write_left(stress);
	while ((count = take(stress, taken))) {
		bool drained = false;

		write_some(stress, taken, count);
		assert_int_equal(weft_get_stats(stress->rig.trainers[0], &stats, NULL), 0);
		if (stress->drains)
			drained = !weft_update_drain(stress->rig.trainers[0], NULL);
		for (uint32_t i = 0; i < count; i++)
			/* half of a pair stays until both are written, which a drain knows */
			if (drained || (stress->frees && taken[i] < PLAIN))
				memset(stress->data[taken[i]], 0xee, stress->bytes[taken[i]]);
	}
	return NULL;
}

static float f8_value(unsigned char bits)
{
	int exponent = bits >> 3 & 15, mantissa = bits & 7;
	float value = exponent ? (float)(8 + mantissa) : (float)mantissa;

	for (int e = exponent ? exponent : 1; e < 10; e++)
		value /= 2;
	for (int e = 10; e < exponent; e++)
		value *= 2;
	return bits & 0x80 ? -value : value;
}

static void check_rank(const struct stress *stress, uint32_t rank)
{
	for (uint32_t t = 0; t < PLAIN + PAIRS; t++) {
		const unsigned char *here =
			weft_param_memory(stress->rig.ranks[rank], t, stress->version);
		uint64_t lo[2], hi[2], columns = stress->tensors[t].shape[1], at = 0;

		assert_non_null(here);
		box_of(stress, t, rank, lo, hi);
		for (uint64_t r = lo[0]; r < hi[0]; r++)
			for (uint64_t c = lo[1]; c < hi[1]; c++, at++) {
				uint64_t i = r * columns + c;
				uint32_t bits;
				float value;

				for (uint32_t b = 0; t < PLAIN && b < 4; b++)
					assert_int_equal(here[at * 4 + b],
							 byte_of(stress->version, t, i * 4 + b));
				if (t < PLAIN)
					continue;
				value = f8_value(byte_of(stress->version, t, i)) *
					scale_of(stress->version, t - PLAIN,
						 r / BLOCK * (SIDE / BLOCK) + c / BLOCK);
				memcpy(&bits, &value, sizeof(bits));
				assert_int_equal(here[at * 2], bits >> 16 & 0xff);
				assert_int_equal(here[at * 2 + 1], bits >> 24);
			}
	}
}

static void update(struct stress *stress, bool gives_up)
{
	struct rig *rig = &stress->rig;
	pthread_t threads[WRITERS];
	weft_error error = WEFT_ERROR_INIT;

	stress->version++;
	stress->left_count = TENSORS;
	for (uint32_t t = 0; t < TENSORS; t++) {
		stress->left[t] = t;
		fill(stress, t);
	}
	if (gives_up)
		stress->left_count = draw(TENSORS);
	stress->writes_all = !gives_up && draw(2);
	rig_wait_begin(rig, stress->version, 0);
	rig_ok(weft_update_begin(rig->trainers[0], stress->version, &error), &error);
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, writer, stress);
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	if (gives_up) {
		assert_int_equal(weft_update_end(rig->trainers[0], &error), -WEFT_E_STATE);
		rig_ok(weft_update_abort(rig->trainers[0], "no", &error), &error);
		rig_wait_end(rig, -WEFT_E_ABORTED);
		return;
	}
	rig_ok(weft_update_end(rig->trainers[0], &error), &error);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		check_rank(stress, i);
}

/* Of one version: each distinct source once. */
static uint64_t distinct_bytes(const struct stress *stress)
{
	uint64_t bytes = PAIRS * SIDE * SIDE * 2;

	for (uint32_t t = 0; t < PLAIN; t++)
		bytes += stress->bytes[t];
	return bytes;
}

static void run_plan(uint64_t number, bool mixed)
{
	static const uint64_t rings[] = {1, 1000, 4096, 65536, 0, 300000};
	struct stress *stress = malloc(sizeof(*stress));
	struct mock_options mock = {.local_registration = true};
	struct rig_options options = {.trainers = 1, .transport = mixed ? "mock,shm" : "mock"};
	uint64_t updates = 4, ended = 0;
	bool given_up = false, full = number % 4 == 3;
	uint32_t mapped, beyond = 0;
	bool registered = false;
	weft_stats stats = WEFT_STATS_INIT;

	assert_non_null(stress);
	seed = 0x9e3779b97f4a7c15u * (number + 1);
	mock.delay_max = draw(40);
	mock.write_bytes_max = 256u << draw(6);
	options.ranks = 1 + draw(4);
	mapped = draw(2) ? draw(1u << options.ranks) : 0;
	if (!full) /* a full replica has no size to be given */
		options.ring_bytes = rings[number % (sizeof(rings) / sizeof(rings[0]))];
	options.pack_threads = 1 + draw(4);
	options.checksums = (int)draw(2);
	options.shadow = (int)draw(2);
	options.replica = full ? "full" : "ring";
	if (mixed) {
		beyond = 1 + draw((1u << options.ranks) - 1);
		registered = draw(2);
	}
	open_stress(stress, &options, mock, mapped, beyond, registered);
	stress->frees = full;
	stress->drains = !stress->frees && draw(2);
	for (uint64_t i = 0; i < updates; i++) {
		bool gives_up = draw(4) == 0;

		update(stress, gives_up);
		given_up |= gives_up;
		ended += !gives_up;
	}
	weft_get_stats(stress->rig.trainers[0], &stats, NULL);
	if (!given_up && !mapped && !mixed && (stress->frees || !options.ring_bytes))
		assert_int_equal(stats.packed_bytes, ended * distinct_bytes(stress));
	close_stress(stress);
}

static void test_engine__moves_every_byte_of_drawn_plans(void **state)
{
	(void)state;
	for (uint64_t number = first_plan; number < first_plan + plans; number++)
		run_plan(number, false);
}

static void test_engine__moves_every_byte_over_two_transports_at_once(void **state)
{
	(void)state;
	for (uint64_t number = first_plan; number < first_plan + plans; number++)
		run_plan(number, true);
}

/* Pieces larger than the ring: what is co-packed would be gone again in its turn. */
static void test_slices__are_packed_once_however_small_the_ring(void **state)
{
	const struct rig_options options = {.trainers = 1,
					    .ranks = 4,
					    .transport = "mock",
					    .pack_threads = 1,
					    .ring_bytes = 4096};
	const struct mock_options mock = {.local_registration = true, .delay_max = 10};
	struct stress *stress = malloc(sizeof(*stress));
	weft_stats stats = WEFT_STATS_INIT;

	(void)state;
	assert_non_null(stress);
	seed = 5;
	columns_only = true;
	open_stress(stress, &options, mock, 0, 0, false);
	stress->version = 1;
	stress->left_count = TENSORS;
	for (uint32_t t = 0; t < TENSORS; t++) {
		stress->left[t] = t;
		fill(stress, t);
	}
	rig_wait_begin(&stress->rig, 1, 0);
	assert_int_equal(weft_update_begin(stress->rig.trainers[0], 1, NULL), 0);
	write_left(stress);
	assert_int_equal(weft_update_end(stress->rig.trainers[0], NULL), 0);
	rig_wait_end(&stress->rig, 0);
	for (uint32_t i = 0; i < options.ranks; i++)
		check_rank(stress, i);
	weft_get_stats(stress->rig.trainers[0], &stats, NULL);
	/* but for a weight that several ranks take and that fills a part of the ring by itself */
	assert_in_range(stats.packed_bytes, distinct_bytes(stress),
			distinct_bytes(stress) + PAIRS * SIDE * SIDE * 2);
	close_stress(stress);
	columns_only = false;
}

int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_engine__moves_every_byte_of_drawn_plans),
		cmocka_unit_test(test_engine__moves_every_byte_over_two_transports_at_once),
		cmocka_unit_test(test_slices__are_packed_once_however_small_the_ring),
	};

	if (count > 2) {
		first_plan = strtoull(arguments[1], NULL, 10);
		plans = strtoull(arguments[2], NULL, 10);
	}
	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
