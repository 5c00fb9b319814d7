/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- one wait of an inference rank, step by step.
 */
#include "worker/update/wait.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "pack/pack.h"
#include "worker/update/update_payload.h"

#include <stdio.h>
#include <string.h>

/* ---- life ---- */

static struct sums_piece piece_at(const struct epoch *epoch, size_t number, uint32_t copy)
{
	const struct layout *layout = epoch->options.layout;
	const struct plan_row *row = &epoch->plan->rows[epoch->receive.rows[number]];

	return (struct sums_piece){
		.memory = params_landed(epoch->options.params, copy, row->param) + row->offset,
		.bytes = row->bytes,
		.block_bytes =
			pack_block_bytes(&row->transform, layout->tensors[row->tensor].dtype,
					 layout->params[row->param].dtype, &row->src, row->bytes),
		.spread = row->spread};
}

static int open_sums(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	size_t count = epoch->plan->row_count, copies = epoch->options.params->copies;
	struct sums_piece *pieces = memory_zalloc(copies * count + 1, sizeof(*pieces));
	int rc;

	if (!pieces)
		return memory_error(error, "preparing checksums", copies * count * sizeof(*pieces));
	for (uint32_t copy = 0; copy < copies; copy++)
		for (size_t i = 0; i < count; i++)
			pieces[copy * count + i] = piece_at(epoch, i, copy);
	rc = sums_open(&waiter->sums, epoch->options.params->device, pieces, copies * count, error);
	memory_free(pieces);
	return rc;
}

/* A GPU puts in place what lands for its own memory and is spread there, or is small and one of several: a copy each would take
 * longer than the bytes. */
static bool scatters(const struct epoch *epoch)
{
	size_t small = 0;

	for (size_t i = 0; i < epoch->plan->row_count; i++) {
		const struct plan_row *row = &epoch->plan->rows[i];

		if (row->path != PATH_LANDED ||
		    params_by_processor(epoch->options.params, row->param))
			continue;
		small += row->bytes < MERGE_BYTES;
		if (row->spread.run_bytes || small >= MERGE_PIECES_MIN)
			return true;
	}
	return false;
}

/* What a device does beside copies. */
static int open_device(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	int rc = 0;

	if (!params_on_device(epoch->options.params))
		return 0;
	if (scatters(epoch))
		rc = scatter_open(&waiter->scatter, epoch->options.params->device, WINDOW_ENTRIES,
				  error);
	return !rc && epoch->sums ? open_sums(waiter, error) : rc;
}

int waiter_open(struct waiter *waiter, struct epoch *epoch, struct health *health,
		struct versions *versions, struct watch *watch, struct error *error)
{
	size_t count = epoch->peer_count;
	int rc;

	waiter->epoch = epoch_hold(epoch);
	waiter->health = health;
	waiter->versions = versions;
	waiter->watch = watch;
	waiter->peers = pool_array(&waiter->pool, count, sizeof(*waiter->peers));
	waiter->links = pool_array(&waiter->pool, count, sizeof(*waiter->links));
	waiter->seen = pool_array(&waiter->pool, count + epoch->mate_count, sizeof(*waiter->seen));
	waiter->taking = pool_array(&waiter->pool, count, sizeof(*waiter->taking));
	if (!pool_ok(&waiter->pool))
		return memory_error(error, "preparing updates", count * sizeof(*waiter->links));
	for (size_t p = 0; p < count; p++)
		waiter->peers[p] =
			(struct receive_peer){epoch->peers[p].name,
					      epoch->peers[p].plan->bytes,
					      epoch->peers[p].plan->pieces,
					      transport_endpoint_path(epoch->peers[p].endpoint),
					      epoch->peers[p].landed,
					      epoch->peers[p].landed_bytes};
	receiver_init(&waiter->receiver, waiter->peers, count, waiter->links, epoch->plan->digest,
		      epoch->sums);
	waiter->receiver.past = waiter->past;
	rc = open_device(waiter, error);
	return rc ? rc : waiter_meets_open(waiter, error);
}

void waiter_close(struct waiter *waiter)
{
	waiter->past = waiter->receiver.past;
	waiter_meets_close(waiter);
	/* before anything is unpinned, released or unmapped that it may touch */
	if (waiter->epoch && waiter->epoch->options.params->device)
		device_quiet(waiter->epoch->options.params->device);
	for (uint32_t p = 0; waiter->epoch && waiter->taking && p < waiter->epoch->peer_count; p++)
		waiter_forget(waiter, p);
	scatter_close(&waiter->scatter);
	sums_close(&waiter->sums);
	pool_free(&waiter->pool);
	epoch_release(&waiter->epoch);
}

/* From here on trainers may be told that they may write. */
static void open_memory(struct waiter *waiter)
{
	waiter->copy = versions_spare(waiter->versions);
	waiter->installing = false;
	waiter->opened = true;
	waiter->paused_ns = clock_ns();
	if (!waiter->epoch->options.params->landing)
		versions_open(waiter->versions, waiter->copy);
}

/* ---- what is heard ---- */

struct heard {
	struct update_end end;
	struct update_abort gone;
	struct update_landed landed;
	struct error error;
};

/* A new signal of the peer as an event: 1. ends: not of what landed. */
static int read_signal(struct waiter *waiter, uint32_t p, bool ends, struct heard *heard,
		       struct receive_event *event)
{
	const struct receive_link *link = &waiter->links[p];
	const struct update_pair pair = {.name = waiter->peers[p].name,
					 .opening = link->outstanding ? link->opening : 0};
	struct transport_signal signal;

	if (transport_signal_read(waiter->epoch->peers[p].endpoint, &signal) != 0 ||
	    signal.sequence == waiter->seen[p] || (ends && signal.tag == UPDATE_LANDED))
		return 0;
	waiter->seen[p] = signal.sequence;
	*event = (struct receive_event){.kind = RECEIVE_SIGNAL,
					.peer = p,
					.end = &heard->end,
					.gone = &heard->gone,
					.landed = &heard->landed,
					.error = &heard->error};
	if (update_read_use(&signal, &pair, &event->word, &heard->end, &heard->gone, &heard->landed,
			    &heard->error))
		event->kind = RECEIVE_FAILED;
	/* all ends that came were read before, so the deadline may pass */
	else if (event->word == UPDATE_LANDED)
		event->now_ns = clock_ns();
	return 1;
}

/* A trainer that is gone without having ended, after its last signal was read: 1. */
static int find_gone(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	for (uint32_t p = 0; p < waiter->epoch->peer_count; p++) {
		if (waiter->links[p].ended ||
		    !peer_check_alive(&waiter->epoch->peers[p], &heard->error))
			continue;
		/* its last signal may have come after we looked */
		if (read_signal(waiter, p, false, heard, event))
			return 1;
		*event = (struct receive_event){
			.kind = RECEIVE_GONE, .peer = p, .error = &heard->error};
		return 1;
	}
	return 0;
}

/* What was heard: a signal first, for what is complete is published even when the job ends now. False:
 * nothing. */
static bool listen(struct waiter *waiter, struct heard *heard, struct receive_event *event)
{
	uint32_t count = (uint32_t)waiter->epoch->peer_count;

	/* in turn, so that a trainer that says much does not keep the others from being heard */
	for (uint32_t i = 1; i <= 2 * count; i++)
		if (read_signal(waiter, (waiter->heard + i) % count, i <= count, heard, event)) {
			waiter->heard = event->peer;
			return true;
		}
	if (!health_check(waiter->health, &heard->error))
		return find_gone(waiter, heard, event) ||
		       waiter_hear_mates(waiter, &heard->error, event);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
	return true;
}

static void sleep_until(struct waiter *waiter, uint64_t until_ns)
{
	uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS);

	waiter->signals = transport_signal_wait(waiter->epoch->options.domain, waiter->signals,
						slice < until_ns ? slice : until_ns);
}

/* ---- what is done ---- */

static int send_accept(struct waiter *waiter, const struct receive_step *step, struct error *error)
{
	const struct receiver *receiver = &waiter->receiver;
	const struct epoch *epoch = waiter->epoch;
	const struct peer *peer = &epoch->peers[step->peer];
	struct update_accept accept = {
		.opening = waiter->links[step->peer].opening,
		.min_version = receiver->min_version,
		.max_version = receiver->max_version,
		.plan = epoch->plan->digest,
		.sums_offset = peer->first_piece * sizeof(uint64_t),
		.sums_region = epoch->receive.sums_region ? epoch_sums_region(epoch) : UINT32_MAX,
		.copy = waiter->copy,
		.window_offset = peer->window_at,
		.window_bytes = peer->window_bytes,
		.window_region = peer->landed ? epoch_window_region(epoch) : UINT32_MAX,
		.taken = waiter->links[step->peer].taken,
	};
	uint64_t until = step->until_ns;

	if (clock_ns() >= until) /* to a trainer that was heard when it was late already */
		until = clock_deadline_ns(epoch->wait_ms);
	return transport_signal(peer->endpoint, UPDATE_ACCEPT, &accept, sizeof(accept), until,
				error);
}

/* As pack_piece_sum, of bytes that lie in runs. */
static uint64_t sum_spread(const struct sums_piece *piece)
{
	struct digest_stream all, block;
	uint64_t n, place, last = 0;

	checksum_begin(&all);
	for (uint64_t from = 0; from < piece->bytes; from += piece->block_bytes) {
		uint64_t left = piece->bytes - from,
			 bytes = left < piece->block_bytes ? left : piece->block_bytes;

		checksum_begin(&block);
		for (uint64_t done = 0; done < bytes; done += n) {
			n = spread_next(&piece->spread, from + done, bytes - done, &place);
			digest_add(&block, (const unsigned char *)piece->memory + place, n);
		}
		last = checksum_end(&block);
		digest_add_u64(&all, last);
	}
	return piece->bytes <= piece->block_bytes ? last : checksum_end(&all);
}

/* The k-th piece of a trainer against what it says of it; 1 when they differ. */
static int verify_piece(const struct waiter *waiter, size_t p, uint32_t k, uint64_t version,
			bool name_it, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct receive_plan *plan = &epoch->receive;
	const struct layout *layout = epoch->options.layout;
	const struct plan_row *row =
		&epoch->plan->rows[plan->rows[epoch->peers[p].first_piece + k]];
	size_t number = epoch->peers[p].first_piece + k;
	struct sums_piece piece = piece_at(epoch, number, waiter->copy);
	uint64_t sum = waiter->sums.device ? sums_of(&waiter->sums,
						     waiter->copy * epoch->plan->row_count + number)
		       : piece.spread.run_bytes
			       ? sum_spread(&piece)
			       : pack_piece_sum(piece.memory, piece.bytes, piece.block_bytes);
	uint64_t sent = plan->sums[number];
	char runs[48] = "";

	if (sum == sent)
		return 0;
	if (piece.spread.run_bytes)
		snprintf(runs, sizeof(runs), " in runs of %llu",
			 (unsigned long long)piece.spread.run_bytes);
	if (name_it)
		error_set(
			error, ERROR_CHECKSUM,
			"update %llu: tensor %s from %s differs in "
			"parameter %s, bytes %llu..%llu%s: checksum %016llx here, %016llx sent",
			(unsigned long long)version, layout->tensors[row->tensor].name,
			epoch->peers[p].name, layout->params[row->param].name,
			(unsigned long long)row->offset,
			(unsigned long long)(row->offset + spread_span(&piece.spread, piece.bytes)),
			runs, (unsigned long long)sum, (unsigned long long)sent);
	return 1;
}

/* Kernels see what NICs wrote: those that sum here, and those of whoever is told of the version. */
static int flush(const struct epoch *epoch, struct error *error)
{
	if (!params_on_device(epoch->options.params))
		return 0;
	for (size_t p = 0; p < epoch->peer_count; p++)
		if (transport_endpoint_caps(epoch->peers[p].endpoint)->gpu_direct)
			return device_flush(epoch->options.params->device, error);
	return 0;
}

static int verify(struct waiter *waiter, uint64_t version, struct error *error)
{
	uint64_t begin = clock_ns();
	size_t wrong = 0, pieces = waiter->epoch->plan->row_count;
	int rc = flush(waiter->epoch, error);

	if (!rc && waiter->sums.device)
		rc = sums_run(&waiter->sums, waiter->copy * pieces, pieces, error);
	if (rc)
		return rc;
	for (size_t p = 0; p < waiter->epoch->peer_count && waiter->epoch->sums; p++)
		for (uint32_t k = 0; k < waiter->epoch->peers[p].plan->pieces; k++)
			wrong += (size_t)verify_piece(waiter, p, k, version, !wrong, error);
	if (wrong > 1) {
		size_t n = strlen(error->text);

		snprintf(error->text + n, sizeof(error->text) - n, "; %zu pieces differ in all",
			 wrong);
	}
	waiter->stats.verify_ns = clock_ns() - begin;
	return wrong ? -(int)ERROR_CHECKSUM : 0;
}

int post_load_outside(const struct post_load *load, const char *call, struct error *error)
{
	if (!load->running)
		return 0;
	return error_set(error, ERROR_STATE,
			 "%s is not possible inside the post-load hook, which weft_update_wait "
			 "waits for",
			 call);
}

static int run_hook(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct post_load *load = &waiter->post_load;
	uint64_t begin = clock_ns();
	int answer = 0;

	if (load->hook) {
		load->running = true;
		answer = load->hook(load->context, version);
		load->running = false;
	}
	waiter->stats.post_load_ns = clock_ns() - begin;
	if (!answer)
		return 0;
	return error_set(error, ERROR_POST_LOAD,
			 "update %llu: the post-load hook returned %d; all bytes had arrived, the "
			 "version is not published",
			 (unsigned long long)version, answer);
}

/* From where it landed to where it is read, and only now readers lose their version. */
static int install(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct params *params = waiter->epoch->options.params;
	int rc = 0;

	if (params->landing) {
		waiter->installing = true;
		waiter->paused_ns = clock_ns();
		versions_open(waiter->versions, waiter->copy);
		rc = params_commit(params, clock_deadline_ns(waiter->epoch->wait_ms), error);
	}
	if (rc)
		return error_wrap(
			error, "update %llu: all bytes had arrived, the version is not published",
			(unsigned long long)version);
	return run_hook(waiter, version, error);
}

static void count_clocks(struct waiter *waiter)
{
	const struct params *params = waiter->epoch->options.params;
	uint64_t now = clock_ns();

	waiter->stats.update_ns = now - waiter->receiver.began_ns;
	waiter->stats.install_ns = now - waiter->installs_ns;
	waiter->stats.pause_ns = params->copies > 1 ? 0 : now - waiter->paused_ns;
}

static void tell_published(struct waiter *waiter, uint64_t version)
{
	const struct device *device = waiter->epoch->options.params->device;

	if (device)
		device_publish(device, version);
	control_version(waiter->health->control, version);
	watch_tell(waiter->watch);
}

/* Or all but the last store, which is the host's to order. */
static void publish(struct waiter *waiter, uint64_t version)
{
	waiter->opened = false;
	waiter->stats.updates++;
	for (size_t p = 0; p < waiter->epoch->peer_count; p++)
		waiter->stats.bytes += waiter->epoch->peers[p].plan->bytes;
	count_clocks(waiter);
	if (waiter->versions->by_host) {
		versions_prepare(waiter->versions, waiter->copy, version);
		waiter->versions->prepared = version;
		return;
	}
	versions_publish(waiter->versions, waiter->copy, version);
	tell_published(waiter, version);
}

int waiter_commit(struct waiter *waiter, uint64_t version, struct error *error)
{
	struct versions *versions = waiter->versions;

	if (version && version == versions->prepared) {
		versions_commit(versions);
		tell_published(waiter, version);
		return 0;
	}
	if (version && version == versions_published(versions))
		return 0;
	if (versions->prepared)
		return error_set(error, ERROR_STATE,
				 "weft_commit_at: update %llu is not prepared here, but %llu is",
				 (unsigned long long)version,
				 (unsigned long long)versions->prepared);
	return error_set(
		error, ERROR_STATE,
		"weft_commit_at: update %llu is not prepared here, and no other is: weft_update_wait "
		"prepares one when it answers 0",
		(unsigned long long)version);
}

/* Until the host has said when: nothing else can begin. */
static int wait_prepared(const struct waiter *waiter, uint64_t version, uint64_t *published,
			 struct error *error)
{
	uint64_t prepared = waiter->versions->prepared;

	if (version != prepared)
		return error_set(error, ERROR_STATE,
				 "update %llu is prepared here and not shown: weft_commit_at shows "
				 "it, and then the next one can be waited for",
				 (unsigned long long)prepared);
	if (published)
		*published = prepared;
	return 0;
}

static struct receive_event act(struct waiter *waiter, const struct receive_step *step,
				struct heard *heard)
{
	struct receive_event event = {.kind = RECEIVE_ASKS, .error = &heard->error};
	int rc;

	if (step->kind == RECEIVE_ACCEPT) {
		rc = send_accept(waiter, step, &heard->error);
		event.broken = rc != 0;
	} else if (step->kind == RECEIVE_TAKE) {
		rc = waiter_take(waiter, step->peer, step->until_ns, &event.broken, &heard->error);
		event.kind = RECEIVE_TAKEN;
		event.peer = step->peer;
		event.entries = waiter->taking[step->peer].entries;
		event.bytes = waiter->taking[step->peer].bytes;
		if (!rc)
			waiter_forget(waiter, step->peer);
	} else if (step->kind == RECEIVE_VERIFY) {
		waiter->installs_ns = clock_ns();
		waiter->stats.wait_ns = waiter->installs_ns - waiter->receiver.began_ns;
		rc = verify(waiter, step->version, &heard->error);
	} else {
		WEFT_ASSERT_OP(step->kind, ==, RECEIVE_LOAD);
		rc = install(waiter, step->version, &heard->error);
	}
	if (rc)
		event.kind = RECEIVE_FAILED;
	return event;
}

/* ---- the call ---- */

/* What is staged has touched nothing that is read, up to its installation. */
static void taint(struct waiter *waiter)
{
	if (!waiter->epoch->options.params->landing || waiter->installing)
		versions_fail(waiter->versions, waiter->copy);
}

void waiter_lost(struct waiter *waiter)
{
	if (waiter->receiver.phase != RECEIVE_CLOSED &&
	    waiter->receiver.phase != RECEIVE_PREPARED && waiter->opened)
		taint(waiter);
}

static int give_up(struct waiter *waiter, const struct receive_step *step, struct error *error)
{
	*error = waiter->receiver.error;
	if (!waiter->stats.wait_ns)
		waiter->stats.wait_ns = clock_ns() - waiter->receiver.began_ns;
	if (waiter->receiver.phase == RECEIVE_PREPARED && !step->broken)
		return -(int)error->code; /* all of it is here, and it may be shown yet */
	/* that the job is over, or this worker, the controller tells everybody */
	if (!step->broken && !waiter->health->failed && error->code != ERROR_TIMEOUT &&
	    error->code != ERROR_INTERRUPTED)
		waiter_cannot(waiter, waiter->receiver.past, error->text);
	if (waiter->opened)
		taint(waiter);
	if (step->broken)
		return health_fail(waiter->health, error, waiter->receiver.wanted);
	return -(int)error->code;
}

/* A try that the host interrupts goes on with its clock. */
static bool only_interrupted(const struct waiter *waiter, const struct receive_event *event)
{
	return event->kind == RECEIVE_FAILED && !event->broken &&
	       event->error->code == ERROR_INTERRUPTED && !waiter->health->failed;
}

static bool meet(struct waiter *waiter, const struct receive_step *step, struct heard *heard,
		 struct receive_event *event)
{
	if (step->round == MEET_PUBLISH)
		versions_prepare(waiter->versions, waiter->copy, step->version);
	if (!waiter_meet(waiter, step, &heard->error, event))
		return false;
	event->error = &heard->error;
	if (event->kind == RECEIVE_MET && step->round == MEET_OPEN)
		open_memory(waiter);
	return true;
}

static struct receive_event late(const struct waiter *waiter, const struct receive_step *step,
				 struct heard *heard)
{
	struct text missing = {0}, update = {0};

	if (step->version)
		text_format(&update, "update %llu", (unsigned long long)step->version);
	else
		text_add(&update, "the next update");
	commit_missing(&waiter->committer, &missing);
	error_set(
		&heard->error, ERROR_TIMEOUT,
		"%s: %s after %.1f s; raise the update timeout (--update-timeout) if this is expected",
		text_string(&update), text_string(&missing),
		(double)(waiter->receiver.deadline_ns - waiter->receiver.began_ns) / 1e9);
	text_fini(&missing);
	text_fini(&update);
	return (struct receive_event){.kind = RECEIVE_FAILED, .error = &heard->error};
}

/* The job is to make a pause, and of what is waited for nothing is on its way: what trainers have ended, up to that version, is
 * published or past. */
static bool pauses(const struct waiter *waiter, uint64_t version)
{
	const struct receiver *receiver = &waiter->receiver;
	struct control *control = waiter->health->control;
	uint64_t ended, done = versions_published(waiter->versions);

	if (!control || !control_pause(control, &ended))
		return false;
	if (receiver->phase > RECEIVE_COUNTING)
		return false;
	done = receiver->past > done ? receiver->past : done;
	return done >= ended || version > ended;
}

/* From the event on, to the end or, where it does not block, to where it would sleep. */
static int run(struct waiter *waiter, struct receive_event event, bool block, struct error *error)
{
	struct heard heard;

	for (;;) {
		struct receive_step step = receive_next(&waiter->receiver, &event);

		/* without the time, so that no deadline passes before all that came was heard */
		event = (struct receive_event){.kind = RECEIVE_ASKS};
		if (step.kind == RECEIVE_FAIL)
			return give_up(waiter, &step, error);
		if (step.kind == RECEIVE_PUBLISH) {
			publish(waiter, step.version);
			return 0;
		}
		if ((step.kind == RECEIVE_WAIT || step.kind == RECEIVE_MEET) &&
		    pauses(waiter, waiter->receiver.wanted))
			return WAITER_PAUSES;
		if (step.kind != RECEIVE_WAIT && step.kind != RECEIVE_MEET)
			event = act(waiter, &step, &heard);
		else if (step.kind == RECEIVE_MEET && meet(waiter, &step, &heard, &event))
			;
		else if (step.kind == RECEIVE_MEET && clock_ns() >= step.until_ns)
			event = late(waiter, &step, &heard);
		else if (step.kind == RECEIVE_MEET && block)
			sleep_until(waiter, step.until_ns);
		else if (step.kind == RECEIVE_MEET)
			return WEFT_AGAIN;
		else if (listen(waiter, &heard, &event))
			;
		else if (clock_ns() >= step.until_ns)
			event.now_ns = clock_ns();
		else if (!block)
			return WEFT_AGAIN;
		else
			sleep_until(waiter, step.until_ns);
		if (block || !only_interrupted(waiter, &event))
			continue;
		*error = heard.error;
		return -(int)ERROR_INTERRUPTED;
	}
}

static struct receive_event opens(struct waiter *waiter, uint64_t version, uint32_t timeout_ms)
{
	uint64_t deadline = clock_deadline_ns(timeout_ms ? timeout_ms : waiter->epoch->wait_ms);

	waiter->stats.wait_ns = waiter->stats.verify_ns = waiter->stats.post_load_ns = 0;
	waiter->asks_anew = true;
	if (!waiter->receiver.meets) /* else when all of them are there */
		open_memory(waiter);
	watch_deadline(waiter->watch, deadline);
	return (struct receive_event){
		.kind = RECEIVE_OPENS,
		.version = version,
		.published = versions_published(waiter->versions),
		.now_ns = clock_ns(),
		.deadline_ns = deadline,
	};
}

/* What an earlier wait has promised is shown by now, or, by_host, is every rank's to show: that one has ended well. */
static bool keeps_promise(struct waiter *waiter, struct error *error)
{
	if (!(waiter->versions->by_host ? waiter_is_let_go(waiter) : waiter_is_shown(waiter)))
		return false;
	run(waiter, (struct receive_event){.kind = RECEIVE_MET}, false, error);
	waiter->unfinished = false;
	watch_deadline(waiter->watch, 0);
	return true;
}

int waiter_wait(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block,
		uint64_t *published, struct error *error)
{
	bool tried = waiter->receiver.phase != RECEIVE_CLOSED && waiter->receiver.wanted == version;
	struct receive_event event = {.kind = RECEIVE_ASKS};
	bool done = false;
	int rc;

	watch_drain(waiter->watch);
	if (keeps_promise(waiter, error)) {
		if (!version) /* it is the next one */
			version = waiter->versions->by_host
					  ? waiter->versions->prepared
					  : atomic_load(&waiter->versions->published);
		tried = false;
	}
	if (waiter->versions->prepared)
		return wait_prepared(waiter, version, published, error);
	rc = receive_check(&waiter->receiver, version, versions_published(waiter->versions),
			   atomic_load(&waiter->versions->tainted), &done, error);
	if (!rc && !done && pauses(waiter, version))
		return WAITER_PAUSES;
	if (!rc && !done) {
		if (block || !tried)
			event = opens(waiter, version, timeout_ms);
		rc = run(waiter, event, block, error);
		waiter->unfinished = rc != 0;
		if (waiter->receiver.phase == RECEIVE_CLOSED)
			watch_deadline(waiter->watch, 0);
	}
	if (!rc && published)
		*published = waiter->versions->prepared ? waiter->versions->prepared
							: versions_published(waiter->versions);
	return rc;
}
