/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "metrics/outlet.h"
#include "metrics/page_text.h"
#include "routing/report/certificate.h"
#include "routing/report/summary.h"

#include <pthread.h>
#include <stdio.h>

#define GAP_MS 100u

/* Of the plan that runs. */
struct planned {
	struct summary summary;
	bool there, has_certificate; /* the topology is not flat: seconds mean something */
	struct certificate certificate;
	uint32_t count[ROLE_COUNT];
};

struct controller_metrics {
	struct outlet *outlet;
	const char *job;
	double since;	   /* 1970 */
	uint64_t taken_ms; /* the core's thread */
	pthread_mutex_t lock;
	/* under lock */
	struct controller_figures figures;
	uint64_t refused;
	struct histogram planning;
	struct planned planned;
};

/* ---- the board ---- */

void controller_metrics_take(struct controller_metrics *metrics, const struct controller *core,
			     uint64_t refused, bool last)
{
	struct controller_figures figures;
	uint64_t now = clock_ms();

	if (!metrics || (!last && now < metrics->taken_ms + GAP_MS))
		return;
	metrics->taken_ms = now;
	controller_figures(core, &figures);
	pthread_mutex_lock(&metrics->lock);
	metrics->figures = figures;
	metrics->refused = refused;
	pthread_mutex_unlock(&metrics->lock);
}

static int plan_of(struct planned *planned, const struct table *table, struct error *error)
{
	int rc = summary_of(&planned->summary, table, error);

	planned->has_certificate = table->topology && !table->topology->flat;
	if (!rc && planned->has_certificate)
		rc = certificate_of(&planned->certificate, table, error);
	planned->there = !rc;
	planned->count[ROLE_TRAINER] = table->problem->trainer_count;
	planned->count[ROLE_INFERENCE] = table->problem->inference_count;
	return rc;
}

void controller_metrics_plan(struct controller_metrics *metrics, const struct table *table,
			     uint64_t ns)
{
	struct planned planned = {.there = false}, before;
	struct error error;

	if (!metrics)
		return;
	if (plan_of(&planned, table, &error))
		log_warn("metrics of the plan: %s", error.text);
	pthread_mutex_lock(&metrics->lock);
	before = metrics->planned;
	metrics->planned = planned;
	histogram_add(&metrics->planning, ns);
	pthread_mutex_unlock(&metrics->lock);
	summary_fini(&before.summary);
}

/* ---- the page; with the lock held, which the core's thread wants for a copy alone ---- */

static void put_members(struct page *page, const struct controller_figures *figures)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t i = 0; i < FIGURES_PHASES; i++)
			page_put(page, METRIC_MEMBERS, role_name(role), figures_phase(i),
				 figures->of[role].in[i]);
	for (int role = 0; role < ROLE_COUNT; role++) {
		page_put(page, METRIC_MEMBER_VERSION, role_name(role), "oldest",
			 (double)figures->of[role].oldest);
		page_put(page, METRIC_MEMBER_VERSION, role_name(role), "newest",
			 (double)figures->of[role].newest);
	}
	for (int role = 0; role < ROLE_COUNT; role++) {
		uint64_t now = clock_ms(), heard = figures->of[role].heard_ms;

		if (heard)
			page_put(page, METRIC_SILENCE, role_name(role), NULL,
				 now > heard ? (double)(now - heard) / 1e3 : 0);
	}
	for (int role = 0; role < ROLE_COUNT; role++)
		page_codes(page, METRIC_LOSSES, role_name(role), &figures->of[role].losses);
}

/* What was measured beside what the plan says. */
static void put_slowest(struct page *page, const struct controller_figures *figures,
			const struct planned *planned)
{
	uint64_t trainer_us = figures->of[ROLE_TRAINER].slowest_us;

	for (int role = 0; role < ROLE_COUNT; role++)
		if (figures->of[role].slowest_us)
			page_put(page, METRIC_SLOWEST, role_name(role), NULL,
				 (double)figures->of[role].slowest_us / 1e6);
	if (planned->there && planned->has_certificate && trainer_us)
		page_put(page, METRIC_BOUND_SHARE, NULL, NULL,
			 planned->certificate.bound_seconds * 1e6 / (double)trainer_us);
}

static void put_plan(struct page *page, const struct planned *planned)
{
	const uint64_t *const bytes[ROLE_COUNT] = {
		[ROLE_TRAINER] = planned->summary.trainer_bytes,
		[ROLE_INFERENCE] = planned->summary.inference_bytes,
	};
	char rank[16];

	if (!planned->there)
		return;
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < planned->count[role]; r++) {
			snprintf(rank, sizeof(rank), "%u", r);
			page_put(page, METRIC_PLAN_BYTES, role_name(role), rank,
				 (double)bytes[role][r]);
		}
	page_put(page, METRIC_IMBALANCE, NULL, NULL, planned->summary.imbalance);
	page_put(page, METRIC_LARGEST, NULL, NULL, (double)planned->summary.makespan_bytes);
	page_put(page, METRIC_LEAST, NULL, NULL, (double)planned->summary.lower_bound_bytes);
	if (!planned->has_certificate)
		return;
	page_put(page, METRIC_PREDICTED, NULL, NULL, planned->certificate.makespan_seconds);
	page_put(page, METRIC_BOUND, NULL, NULL, planned->certificate.bound_seconds);
}

static void render(void *context, struct text *text)
{
	struct controller_metrics *metrics = context;
	const struct controller_figures *figures = &metrics->figures;
	struct page page;

	pthread_mutex_lock(&metrics->lock);
	page_begin(&page, text, metrics->job, NULL, 0);
	page_build(&page, WIRE_VERSION);
	page_put(&page, METRIC_STARTED, NULL, NULL, metrics->since);
	page_histogram(&page, METRIC_PHASE, "plan", &metrics->planning);
	for (uint32_t i = 0; i < FIGURES_STATES; i++)
		page_put(&page, METRIC_STATE, figures_state(i), NULL, i == figures->state);
	page_put(&page, METRIC_EPOCH, NULL, NULL, (double)figures->epoch);
	page_put(&page, METRIC_PLANS, NULL, NULL, (double)figures->plans);
	put_members(&page, figures);
	put_plan(&page, &metrics->planned);
	put_slowest(&page, figures, &metrics->planned);
	page_put(&page, METRIC_REFUSED, NULL, NULL, (double)metrics->refused);
	page_codes(&page, METRIC_FAILURES, NULL, &figures->failures);
	pthread_mutex_unlock(&metrics->lock);
}

/* ---- life ---- */

int controller_metrics_open(struct controller_metrics **out, const struct metrics_options *given,
			    const char *job, struct error *error)
{
	struct outlet_options options = {
		.address = given->address,
		.file = given->file,
		.address_name = given->address_name,
		.file_name = given->file_name,
		.who = "controller",
		.render = render,
	};
	struct controller_metrics *metrics;
	int rc;

	*out = NULL;
	if (!outlet_wanted(&options))
		return 0;
	metrics = options.context = *out = memory_zalloc(1, sizeof(*metrics));
	if (!metrics)
		return memory_error(error, "opening metrics", sizeof(*metrics));
	pthread_mutex_init(&metrics->lock, NULL);
	metrics->job = job;
	metrics->since = (double)clock_wall_ms() / 1e3;
	rc = outlet_open(&metrics->outlet, &options, error);
	if (rc)
		controller_metrics_close(out);
	return rc;
}

void controller_metrics_close(struct controller_metrics **out)
{
	struct controller_metrics *metrics = *out;

	*out = NULL;
	if (!metrics)
		return;
	outlet_close(&metrics->outlet);
	summary_fini(&metrics->planned.summary);
	pthread_mutex_destroy(&metrics->lock);
	memory_free(metrics);
}
