/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_order: how long each send order takes, by number of routes. One JSON object a line:
 *   bench_order [LARGEST_ROUTES]          default 1,500,000
 * Tables are 256 trainers in 8 stages to 8 engines of 32 ranks, as a large mixture of experts has
 * them: of 16 tensors, 15 are experts that one rank of each engine wants, packed, and one is wanted
 * by all ranks; who of its stage sends a route goes round, as a balanced policy does it.
 */
#include "base/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "routing/plan/order.h"

#include <stdio.h>
#include <time.h>

enum { TRAINERS = 256, STAGES = 8, ENGINES = 8, WIDTH = 32, RANKS = ENGINES * WIDTH };

/* Of this process alone: on a busy machine the wall clock also counts the others. */
static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void add_route(struct table *table, uint32_t tensor, uint32_t inference, uint64_t bytes,
		      enum route_path path)
{
	size_t r = table->route_count++;
	uint32_t stage = tensor / 1024 % STAGES;

	table->pieces[r] = (struct route_piece){
		.src = {.dims = 2, .hi = {2048, 7168}}, .bytes = bytes, .path = path};
	table->routes[r] = (struct route){.tensor = tensor,
					  .trainer = stage * (TRAINERS / STAGES) +
						     (uint32_t)(r % (TRAINERS / STAGES)),
					  .inference = inference,
					  .piece_count = 1,
					  .piece_first = r,
					  .bytes = bytes};
	table->piece_count++;
}

static void fill(struct table *table, size_t routes)
{
	for (uint32_t tensor = 0; table->route_count < routes; tensor++) {
		bool expert = tensor % 16 != 0;

		for (uint32_t i = 0; i < RANKS && table->route_count < routes; i++)
			if (!expert || i % WIDTH == tensor % WIDTH)
				add_route(table, tensor, i,
					  expert ? 14680064 : 1000000 + tensor % 7 * 100000,
					  expert ? PATH_REPLICA : PATH_DIRECT);
	}
}

static int measure(const struct table *table, struct error *error)
{
	struct send_order sends;
	uint64_t begin = cpu_ns();
	struct json json;

	if (order_sends(table, &sends, error))
		return -1;
	begin = cpu_ns() - begin;
	json_to_file(&json, stdout);
	json_put_object(&json);
	json_put_key_string(&json, "order", table->order);
	json_put_key_u64(&json, "routes", table->route_count);
	json_put_key_double(&json, "cpu_seconds", (double)begin / 1e9);
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
	send_order_fini(&sends);
	return 0;
}

static int measure_all(size_t routes, struct error *error)
{
	static const struct problem problem = {.trainer_count = TRAINERS, .inference_count = RANKS};
	struct table table = {.problem = &problem,
			      .routes = memory_alloc(routes * sizeof(*table.routes)),
			      .pieces = memory_alloc(routes * sizeof(*table.pieces))};
	size_t count;
	const struct order *orders = order_list(&count);
	int rc = 0;

	if (!table.routes || !table.pieces)
		rc = memory_error(error, "making a table", routes * sizeof(*table.pieces));
	else
		fill(&table, routes);
	for (size_t o = 0; !rc && o < count; o++) {
		table.order = orders[o].name;
		rc = measure(&table, error);
	}
	memory_free(table.routes);
	memory_free(table.pieces);
	return rc;
}

int main(int argc, char **argv)
{
	uint64_t largest = 1500000;
	struct error error = {0};
	int rc = 0;

	if (argc > 2 || (argc == 2 && !parse_u64(argv[1], &largest))) {
		fprintf(stderr, "usage: bench_order [LARGEST_ROUTES]\n");
		return 2;
	}
	for (uint64_t routes = 1000; !rc && routes < largest; routes *= 10)
		rc = measure_all(routes, &error);
	if (!rc)
		rc = measure_all(largest, &error);
	if (rc)
		fprintf(stderr, "bench_order: %s\n", error.text);
	return rc ? 1 : 0;
}
