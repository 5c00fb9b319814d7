/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "metrics/outlet.h"
#include "metrics/page_text.h"
#include "worker/api/worker.h"

#include <unistd.h>

/* Parts of an update that a role has a clock for; docs/metrics.md says what each is. */
enum phase {
	PHASE_ACCEPT,
	PHASE_WRITE,
	PHASE_VERIFY,
	PHASE_COMMIT,
	PHASE_POST_LOAD,
	PHASE_PAUSE,
	PHASES
};

static const struct {
	const char *name;
	bool of[ROLE_COUNT];
} phases[PHASES] = {
	[PHASE_ACCEPT] = {"accept", {[ROLE_TRAINER] = true}},
	[PHASE_WRITE] = {"write", {[ROLE_TRAINER] = true, [ROLE_INFERENCE] = true}},
	[PHASE_VERIFY] = {"verify", {[ROLE_INFERENCE] = true}},
	[PHASE_COMMIT] = {"commit", {[ROLE_INFERENCE] = true}},
	[PHASE_POST_LOAD] = {"post_load", {[ROLE_INFERENCE] = true}},
	[PHASE_PAUSE] = {"pause", {[ROLE_INFERENCE] = true}},
};

static const char *const result_names[SYNC_RESULTS] = {"ok", "failed", "aborted"};

struct board {
	uint64_t started, finished[SYNC_RESULTS];
	bool open; /* one is begun that is not over */
	struct histogram sync, phases[PHASES];
	struct code_counts failures;
	weft_stats stats; /* as of the last update that is over */
	uint64_t version, version_ns, peers;
};

struct worker_metrics {
	struct outlet *outlet;
	double since; /* 1970 */
	pthread_mutex_t lock;
	struct board board;		 /* under it */
	struct transport_domain *domain; /* under it: opened later than this, NULL before */
};

/* ---- what the host's calls write ---- */

/* NULL: none is wanted; or this is a forked child, whose copy of the lock may be held for ever by a thread that it has not. */
static struct worker_metrics *metrics_of(const struct weft_worker *worker)
{
	return worker->metrics && worker->pid == getpid() ? worker->metrics : NULL;
}

void metrics_starts(struct weft_worker *worker)
{
	struct worker_metrics *metrics = metrics_of(worker);

	if (!metrics)
		return;
	pthread_mutex_lock(&metrics->lock);
	metrics->board.started += !metrics->board.open;
	metrics->board.open = true;
	pthread_mutex_unlock(&metrics->lock);
}

static void add_clocks(struct board *board, const weft_stats *stats, enum role role)
{
	uint64_t parts = stats->verify_ns + stats->post_load_ns;
	const uint64_t ns[PHASES] = {
		[PHASE_ACCEPT] = stats->wait_ns,
		[PHASE_WRITE] = role == ROLE_TRAINER ? stats->copy_ns : stats->wait_ns,
		[PHASE_VERIFY] = stats->verify_ns,
		[PHASE_COMMIT] = stats->install_ns > parts ? stats->install_ns - parts : 0,
		[PHASE_POST_LOAD] = stats->post_load_ns,
		[PHASE_PAUSE] = stats->pause_ns,
	};

	histogram_add(&board->sync, stats->update_ns);
	for (int i = 0; i < PHASES; i++)
		if (phases[i].of[role])
			histogram_add(&board->phases[i], ns[i]);
}

static uint64_t version_of(const struct weft_worker *worker)
{
	return worker->self.role == ROLE_TRAINER ? worker->sender.ended
						 : versions_published(&worker->versions);
}

/* With the lock held. */
static void take_version(struct board *board, uint64_t version)
{
	if (version != board->version)
		board->version_ns = clock_ns();
	board->version = version;
}

void metrics_ends(struct weft_worker *worker, enum sync_result result)
{
	struct worker_metrics *metrics = metrics_of(worker);
	struct board *board;
	weft_stats stats;

	if (!metrics)
		return;
	worker_figures(worker, &stats); /* takes locks of the data path, so not under ours */
	board = &metrics->board;
	pthread_mutex_lock(&metrics->lock);
	board->finished[result] += board->open;
	board->open = false;
	if (stats.updates > board->stats.updates)
		add_clocks(board, &stats, worker->self.role);
	board->stats = stats;
	take_version(board, version_of(worker));
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_fails(struct weft_worker *worker, enum error_code code)
{
	bool goes_on = worker->self.role == ROLE_TRAINER && !worker->health.failed &&
		       sender_open_version(&worker->sender);

	/* who was interrupted calls again, and what a trainer has wrong it mends and goes on */
	if (!worker->metrics || code == ERROR_INTERRUPTED || goes_on)
		return;
	metrics_ends(worker, code == ERROR_ABORTED ? SYNC_ABORTED : SYNC_FAILED);
}

void metrics_failure(struct weft_worker *worker, enum error_code code)
{
	struct worker_metrics *metrics = metrics_of(worker);

	if (!metrics)
		return;
	pthread_mutex_lock(&metrics->lock);
	codes_count(&metrics->board.failures, code);
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_domain(struct weft_worker *worker)
{
	struct worker_metrics *metrics = metrics_of(worker);

	if (!metrics)
		return;
	pthread_mutex_lock(&metrics->lock);
	metrics->domain = worker->domain;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_look(struct weft_worker *worker)
{
	struct worker_metrics *metrics = metrics_of(worker);

	if (!metrics)
		return;
	pthread_mutex_lock(&metrics->lock);
	metrics->board.peers = worker->epoch ? worker->epoch->peer_count : 0;
	take_version(&metrics->board, version_of(worker));
	pthread_mutex_unlock(&metrics->lock);
}

/* ---- the page ---- */

static double seconds_since(uint64_t ns)
{
	uint64_t now = clock_ns();

	return now > ns ? (double)(now - ns) / 1e9 : 0;
}

static void put(struct page *page, enum metric metric, uint64_t value)
{
	page_put(page, metric, NULL, NULL, (double)value);
}

static void put_syncs(struct page *page, const struct weft_worker *worker,
		      const struct board *board)
{
	put(page, METRIC_SYNC_STARTED, board->started);
	for (int i = 0; i < SYNC_RESULTS; i++)
		page_put(page, METRIC_SYNC_FINISHED, result_names[i], NULL,
			 (double)board->finished[i]);
	page_histogram(page, METRIC_SYNC, NULL, &board->sync);
	for (int i = 0; i < PHASES; i++)
		if (phases[i].of[worker->self.role])
			page_histogram(page, METRIC_PHASE, phases[i].name, &board->phases[i]);
	put(page, METRIC_VERSION, board->version);
	page_put(page, METRIC_VERSION_AGE, NULL, NULL, seconds_since(board->version_ns));
}

static void put_trainer(struct page *page, const weft_stats *stats)
{
	const struct {
		const char *path;
		uint64_t pieces;
	} paths[] = {{"direct", stats->pieces_direct},
		     {"mapped", stats->pieces_mapped},
		     {"replica", stats->pieces_replica},
		     {"landed", stats->pieces_landed}};

	put(page, METRIC_SENT, stats->bytes - stats->saved_bytes);
	put(page, METRIC_SAVED, stats->saved_bytes);
	put(page, METRIC_PACKED, stats->packed_bytes);
	put(page, METRIC_WRITES, stats->writes);
	put(page, METRIC_CHUNKS, stats->chunks);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		page_put(page, METRIC_PIECES, paths[i].path, NULL, (double)paths[i].pieces);
	put(page, METRIC_LAUNCHES, stats->launches);
}

/* As they are now, not as of the last update: a NIC that hangs must be seen in the midst of one. One that nothing went
 * through, or that nobody counts, is left out. */
static void put_nics(struct page *page, struct transport_domain *domain)
{
	struct transport_traffic traffic[LIMIT_NICS];
	const struct transport_nic *nics;
	uint32_t count = 0;

	nics = domain ? transport_domain_nics(domain, &count) : NULL;
	count = count < LIMIT_NICS ? count : LIMIT_NICS;
	for (uint32_t i = 0; i < count; i++)
		transport_domain_traffic(domain, i, &traffic[i]);
	for (int metric = METRIC_NIC_SENT; metric <= METRIC_NIC_WAITING; metric++)
		for (uint32_t i = 0; i < count; i++) {
			const double values[] = {(double)traffic[i].bytes,
						 (double)traffic[i].busy_ns / 1e9,
						 (double)traffic[i].waiting_bytes};

			if (traffic[i].bytes || traffic[i].waiting_bytes)
				page_put(page, (enum metric)metric, nics[i].name, NULL,
					 values[metric - METRIC_NIC_SENT]);
		}
}

/* What the controller says comes from the control thread's own lock and atomics, as weft_loss_at does. */
static void put_others(struct page *page, const struct weft_worker *worker,
		       const struct board *board)
{
	struct control_figures figures;
	struct code_counts losses[ROLE_COUNT] = {0};
	struct control_gone gone;
	uint64_t left = 0;

	for (uint32_t i = 0; control_gone(worker->control, i, &gone); i++) {
		left += gone.back ? 0 : gone.count;
		codes_count(&losses[gone.first.role], gone.why.code);
	}
	page_put(page, METRIC_PEERS, "planned", NULL, (double)board->peers);
	page_put(page, METRIC_PEERS, "left", NULL, (double)left);
	control_figures(worker->control, &figures);
	if (figures.heard_ns)
		page_put(page, METRIC_HEARD_AGE, NULL, NULL, seconds_since(figures.heard_ns));
	page_histogram(page, METRIC_RTT, NULL, &figures.rtt);
	for (int role = 0; role < ROLE_COUNT; role++)
		page_codes(page, METRIC_LOSSES, role_name(role), &losses[role]);
	page_codes(page, METRIC_FAILURES, NULL, &board->failures);
}

static void render(void *context, struct text *text)
{
	const struct weft_worker *worker = context;
	struct worker_metrics *metrics = worker->metrics;
	bool trainer = worker->self.role == ROLE_TRAINER;
	struct transport_domain *domain;
	struct board board;
	struct page page;

	pthread_mutex_lock(&metrics->lock);
	board = metrics->board;
	domain = metrics->domain;
	pthread_mutex_unlock(&metrics->lock);
	page_begin(&page, text, worker->job, role_name(worker->self.role), worker->self.rank);
	page_build(&page, WIRE_VERSION);
	page_put(&page, METRIC_STARTED, NULL, NULL, metrics->since);
	put_syncs(&page, worker, &board);
	if (trainer) {
		put_trainer(&page, &board.stats);
	} else {
		put(&page, METRIC_TAINTED, atomic_load(&worker->versions.tainted) != 0);
		put(&page, METRIC_RECEIVED, board.stats.bytes);
	}
	put_nics(&page, domain);
	put_others(&page, worker, &board);
}

/* ---- life ---- */

int metrics_open(struct weft_worker *worker, const weft_options *given, struct error *error)
{
	struct outlet_options options = {
		.who = worker->log_name, .render = render, .context = worker};
	struct worker_metrics *metrics;
	int rc;

	options.address = outlet_choose(given->metrics, "metrics (--metrics)", "WEFT_METRICS",
					&options.address_name);
	options.file = outlet_choose(given->metrics_file, "metrics_file (--metrics-file)",
				     "WEFT_METRICS_FILE", &options.file_name);
	if (!outlet_wanted(&options))
		return 0;
	metrics = memory_zalloc(1, sizeof(*metrics));
	if (!metrics)
		return memory_error(error, "opening metrics", sizeof(*metrics));
	pthread_mutex_init(&metrics->lock, NULL);
	metrics->since = (double)clock_wall_ms() / 1e3;
	metrics->board.version_ns = clock_ns();
	worker->metrics = metrics;
	rc = outlet_open(&metrics->outlet, &options, error);
	if (rc)
		metrics_close(worker);
	return rc;
}

void metrics_close(struct weft_worker *worker)
{
	struct worker_metrics *metrics = worker->metrics;

	if (!metrics)
		return;
	if (metrics->board.open) /* nobody waits for it any more */
		metrics_ends(worker, SYNC_ABORTED);
	outlet_close(&metrics->outlet);
	pthread_mutex_destroy(&metrics->lock);
	memory_free(metrics);
	worker->metrics = NULL;
}
