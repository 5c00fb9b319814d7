/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void fill(struct pairs *pairs, const uint32_t trainers[][2], const uint32_t inference[][2])
{
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t rank = 0; rank < pairs->count[role]; rank++)
			for (uint32_t t = 0; t < 2; t++)
				pairs_side(pairs, (enum role)role, rank, t)->reach =
					(role == ROLE_TRAINER ? trainers : inference)[rank][t];
}

/* The picture in pairs.h. */
static const uint32_t trainers[][2] = {{1, 1}, {2, 1}}, inference[][2] = {{1, 1}, {3, 0}};

static void open_pairs(struct pairs *pairs, struct pool *pool, const uint32_t a[][2],
		       const uint32_t b[][2])
{
	struct transports list;

	assert_int_equal(transports_parse(&list, "shm,verbs", NULL), 0);
	assert_true(pairs_init(pairs, pool, &list, 2, 2));
	fill(pairs, a, b);
}

static bool reach_alike(const struct pairs *a, const struct pairs *b)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t i = 0; i < a->count[role] * a->list.count; i++)
			if (a->sides[role][i].reach != b->sides[role][i].reach)
				return false;
	return true;
}

static void test_pairs__each_uses_the_first_that_both_have_and_that_reaches(void **state)
{
	struct pool pool = {0};
	struct pairs pairs;

	(void)state;
	open_pairs(&pairs, &pool, trainers, inference);
	assert_string_equal(pairs_name(&pairs, 0, 0), "shm");
	assert_string_equal(pairs_name(&pairs, 1, 0), "verbs");
	assert_string_equal(pairs_name(&pairs, 0, 1), "none");
	assert_int_equal(pairs_transport(&pairs, 1, 1), 2);
	/* nobody has it: that is no meeting */
	pairs_side(&pairs, ROLE_TRAINER, 0, 0)->reach = 0;
	pairs_side(&pairs, ROLE_INFERENCE, 0, 0)->reach = 0;
	assert_string_equal(pairs_name(&pairs, 0, 0), "verbs");
	pool_free(&pool);
}

static void test_pairs__numbers_do_not_depend_on_how_they_were_given(void **state)
{
	const uint32_t other_trainers[][2] = {{70, 5}, {9, 5}}, other[][2] = {{70, 5}, {4, 0}};
	struct pairs a, b, c;
	struct pool pool = {0};

	(void)state;
	open_pairs(&a, &pool, trainers, inference);
	open_pairs(&b, &pool, other_trainers, other);
	assert_false(reach_alike(&a, &b));
	assert_true(pairs_number(&b));
	assert_true(reach_alike(&a, &b));
	assert_true(pairs_number(&a));
	assert_true(reach_alike(&a, &b));
	assert_true(pairs_copy(&c, &pool, &a));
	assert_true(reach_alike(&a, &c));
	pairs_side(&c, ROLE_INFERENCE, 1, 1)->reach = 1;
	assert_false(reach_alike(&a, &c));
	pool_free(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs__each_uses_the_first_that_both_have_and_that_reaches),
		cmocka_unit_test(test_pairs__numbers_do_not_depend_on_how_they_were_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
