/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/abi.h"
#include "worker/api/metrics.h"
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/plain.h"
#include "job/transports.h"
#include "metrics/outlet.h"
#include "trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_JOIN_MS	      60000u
#define DEFAULT_RING_BYTES    (1ull << 30)
#define DEFAULT_LANDING_BYTES (256ull << 20)
#define LEAVE_MS	      3000u

/* weft.h repeats the project's codes as numbers, for programs that see nothing else */
#define X(name, number, exit_code, words) \
	_Static_assert((int)WEFT_E_##name == (int)ERROR_##name, "weft.h and error.h differ");
ERROR_CODES(X)
#undef X
_Static_assert(sizeof(((weft_error *)0)->text) == ERROR_TEXT_BYTES, "messages are cut");

/* 0 is no role for a host, so that none is taken for one; between workers roles are counted from 0. */
static const enum role roles[] = {[WEFT_TRAINER] = ROLE_TRAINER, [WEFT_INFERENCE] = ROLE_INFERENCE};

static int check_options(const weft_options *options, struct error *error)
{
	if (!options->controller || !*options->controller)
		return error_set(error, ERROR_CONFIG,
				 "no controller address; give one as tcp://host:29600 "
				 "(--controller or WEFT_CONTROLLER)");
	if (options->role != WEFT_TRAINER && options->role != WEFT_INFERENCE)
		return error_set(error, ERROR_USAGE,
				 "weft_open: role is %d; it is WEFT_TRAINER (%d) or "
				 "WEFT_INFERENCE (%d)",
				 (int)options->role, WEFT_TRAINER, WEFT_INFERENCE);
	if (options->rank >= LIMIT_RANKS)
		return error_set(error, ERROR_LIMIT, "rank %u; ranks of a role are below %u",
				 options->rank, LIMIT_RANKS);
	if (options->job && strlen(options->job) >= LIMIT_JOB_BYTES)
		return error_set(error, ERROR_LIMIT, "the job's name has %zu bytes; at most %d",
				 strlen(options->job), LIMIT_JOB_BYTES - 1);
	if (options->shadow && options->own_memory)
		return error_set(error, ERROR_USAGE,
				 "shadow keeps two copies of the parameters, "
				 "own_memory gives one: choose one of them");
	if (options->role == WEFT_TRAINER &&
	    (options->shadow || options->own_memory || options->commit_by_host))
		return error_set(error, ERROR_USAGE,
				 "shadow, own_memory and commit_by_host are for inference ranks");
	if (options->commit_by_host && !options->shadow)
		return error_set(error, ERROR_USAGE,
				 "commit_by_host keeps readers on the version before until "
				 "weft_commit_at, which takes two copies: set shadow too");
	return 0;
}

static uint64_t new_incarnation(void)
{
	uint64_t value = 0;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		value = clock_ns() ^ (uint64_t)getpid() << 40;
	return value ? value : 1;
}

/* What names this machine's kernel: two workers with the same can share memory. */
static void find_host(struct weft_worker *worker)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	char name[sizeof(worker->host)];

	if (gethostname(worker->host, sizeof(worker->host) - 1))
		snprintf(worker->host, sizeof(worker->host), "unknown");
	snprintf(name, sizeof(name), "%s", worker->host); /* bytes that no message can carry */
	plain_put(worker->host, sizeof(worker->host), name);
	snprintf(worker->host_id, sizeof(worker->host_id), "host:%.50s", worker->host);
	if (!file)
		return;
	if (fgets(worker->host_id, sizeof(worker->host_id), file))
		worker->host_id[strcspn(worker->host_id, "\n")] = 0;
	fclose(file);
}

/* Lines of the library say which program they are from, and which of its workers. */
static void open_log(struct weft_worker *worker)
{
	snprintf(worker->log_name, sizeof(worker->log_name), "%c%u",
		 worker->self.role == ROLE_TRAINER ? 't' : 'i', worker->self.rank);
	log_open(program_invocation_short_name, "");
	log_as(worker->log_name);
	log_of_job(worker->job);
}

static int open_domain(struct weft_worker *worker, struct error *error)
{
	struct transport_options options = {
		.self = worker->self,
		.device = worker_device_number(worker),
		.device_memory = worker->device != NULL,
	};
	int length = snprintf(options.nics, sizeof(options.nics), "%s", worker->nic);

	if ((size_t)length >= sizeof(options.nics))
		return error_set(error, ERROR_LIMIT, "nic has %d characters; at most %zu", length,
				 sizeof(options.nics) - 1);

	/* not a password: it keeps records of another job on the same host apart */
	options.secret = digest_bytes(worker->job, strlen(worker->job)).low;
	snprintf(options.name, sizeof(options.name), "%.63s", worker->self_name);
	return transport_domain_open(&worker->domain, worker->transport, &options, error);
}

static const char *text_or(const char *given, const char *other)
{
	return given && *given ? given : other;
}

static int choose_replica(struct weft_worker *worker, const weft_options *options,
			  struct error *error)
{
	const char *form = text_or(options->replica, "ring");

	if (options->role == WEFT_INFERENCE && *text_or(options->replica, ""))
		return error_set(error, ERROR_USAGE, "replica '%.40s' is for trainers",
				 options->replica);
	worker->full = !strcmp(form, "full");
	worker->host_ring = !strcmp(form, "host");
	if (!worker->full && !worker->host_ring && strcmp(form, "ring") != 0)
		return error_set(
			error, ERROR_CONFIG,
			"replica '%.40s' is unknown; it is \"ring\" (bounded, the default), "
			"\"host\" (the same in memory of the host, for tensors of a GPU) or "
			"\"full\" (keeps the last version)",
			form);
	if (worker->full && options->ring_bytes)
		return error_set(
			error, ERROR_USAGE,
			"ring_bytes (--ring-bytes) is %llu, but replica 'full' is no ring: it "
			"takes what this trainer sends one inference rank; leave one of the "
			"two out",
			(unsigned long long)options->ring_bytes);
	if (options->pack_threads > PACK_THREADS_MAX)
		return error_set(error, ERROR_LIMIT,
				 "pack_threads (--pack-threads) is %u; 0 to %u is possible",
				 options->pack_threads, PACK_THREADS_MAX);
	worker->pack_threads = options->pack_threads;
	return 0;
}

/* A list is declared as one text, which all workers have to give alike. */
static int choose_transport(struct weft_worker *worker, const char *given, struct error *error)
{
	char text[TRANSPORTS_TEXT_BYTES];
	struct transports list;
	int rc = 0;

	if (transports_listed(given)) {
		rc = transports_parse(&list, given, error);
		given = transports_text(&list, text);
		if (!rc)
			log_info("transports %s: each pair uses the first of them that both sides "
				 "have and that reaches (of those that write the rank's memory, if "
				 "that is a GPU's)",
				 given);
	}
	worker->transport = pool_string(&worker->texts, given);
	return rc;
}

static const char *key_file(const weft_options *options)
{
	const char *named = getenv("WEFT_KEY_FILE");

	return options->key_file && *options->key_file ? options->key_file : text_or(named, "");
}

static int fill(struct weft_worker *worker, const weft_options *options, struct error *error)
{
	char name[MEMBER_TEXT_BYTES];
	int rc = choose_replica(worker, options, error);

	if (rc)
		return rc;
	worker->pid = getpid();
	worker->incarnation = new_incarnation();
	worker->self.role = roles[options->role];
	worker->self.rank = options->rank;
	worker->join_timeout_ms =
		options->join_timeout_ms ? options->join_timeout_ms : DEFAULT_JOIN_MS;
	worker->update_timeout_ms = options->update_timeout_ms;
	worker->ring_bytes = options->ring_bytes ? options->ring_bytes : DEFAULT_RING_BYTES;
	worker->landing_bytes =
		options->landing_bytes ? options->landing_bytes : DEFAULT_LANDING_BYTES;
	worker->checksums = options->checksums != 0;
	worker->shadow = options->shadow != 0;
	worker->own_memory = options->own_memory != 0;
	find_host(worker);
	worker->job = pool_string(&worker->texts, text_or(options->job, "weft"));
	if (!pool_ok(&worker->texts))
		return memory_error(error, "opening a worker", 0);
	open_log(worker);
	snprintf(worker->self_name, sizeof(worker->self_name), "%s (host %.64s)",
		 member_text(worker->self, name), worker->host);
	layout_init(&worker->layout);
	holding_init(&worker->holding);
	worker->versions.copies = worker->shadow ? 2 : 1;
	worker->versions.by_host = options->commit_by_host != 0;
	worker->controller = pool_string(&worker->texts, options->controller);
	rc = choose_transport(worker, text_or(options->transport, "shm"), error);
	if (rc)
		return rc;
	rc = worker_choose_memory(worker, options, error);
	if (rc)
		return rc;
	worker->key_file = pool_string(&worker->texts, key_file(options));
	worker->nic = pool_string(&worker->texts, text_or(options->nic, ""));
	return pool_ok(&worker->texts) ? 0 : memory_error(error, "opening a worker", 0);
}

static int open_trace(struct weft_worker *worker, const char *given, struct error *error)
{
	struct trace_options options = {.who = worker->log_name,
					.job = worker->job,
					.role = role_name(worker->self.role),
					.rank = (int)worker->self.rank};
	int rc;

	options.file = outlet_choose(given, "trace (--trace)", "WEFT_TRACE", &options.file_name);
	rc = trace_open(&worker->trace, &options, error);
	if (!rc)
		control_trace(worker->control, worker->trace);
	return rc;
}

/* After a failure weft_close closes what there is. */
static int open_worker(weft_worker **out, const weft_options *options, struct error *error)
{
	struct weft_worker *worker = *out = memory_zalloc(1, sizeof(*worker));
	struct error untold;
	int rc;

	if (!worker)
		return memory_error(error, "opening a worker", sizeof(*worker));
	health_init(&worker->health, worker->self_name);
	watch_init(&worker->watch);
	sender_init(&worker->sender, &worker->health, &worker->watch);
	sender_init(&worker->stand_in.sender, &worker->health, &worker->watch);
	rc = fill(worker, options, error);
	/* first, so that the others can be told why the rest could not be opened */
	if (!rc)
		rc = control_open(&worker->control,
				  &(struct control_options){
					  .address = worker->controller,
					  .log_name = worker->log_name,
					  .key_file = worker->key_file,
					  .key_waits = options->key_waits,
					  .role = worker->self.role,
				  },
				  error);
	worker->health.control = worker->control;
	if (!rc && ((rc = open_trace(worker, options->trace, error)) ||
		    (rc = metrics_open(worker, options, error)) ||
		    (rc = worker_open_device(worker, error)) || (rc = open_domain(worker, error)) ||
		    (rc = worker_check_way(worker, error))))
		worker_tell(worker, error, worker->join_timeout_ms, &untold);
	if (rc)
		return rc;
	control_attach(worker->control, worker->domain, &worker->health.activity);
	metrics_domain(worker);
	return 0;
}

int weft_open(weft_worker **out, const weft_options *options, weft_error *error)
{
	weft_options given;
	struct error inner;
	int rc;

	if (!out)
		return worker_result(error_set(&inner, ERROR_USAGE, "weft_open: worker is NULL"),
				     &inner, error);
	*out = NULL;
	rc = abi_take(ABI_OPTIONS, "weft_open", options, &given, &inner);
	if (!rc)
		rc = check_options(&given, &inner);
	if (!rc)
		rc = open_worker(out, &given, &inner);
	if (rc)
		weft_close(out);
	return worker_result(rc, &inner, error);
}

int weft_join(weft_worker *worker, uint32_t timeout_ms, weft_error *error)
{
	struct error inner;
	/* one that was interrupted goes on */
	bool again = worker && worker->stage == STAGE_JOINING && !worker->health.failed;
	int rc = worker_stage(worker, again ? STAGE_JOINING : STAGE_OPEN, "weft_join", &inner);

	join_call_begins(worker);
	if (!rc)
		rc = health_check(&worker->health, &inner);
	if (!rc)
		rc = join_run(worker, timeout_ms, &inner);
	join_call_ends(worker);
	return worker_result(rc, &inner, error);
}

int weft_descriptor(weft_worker *worker, int *descriptor, weft_error *error)
{
	struct error inner;
	int rc = worker_stage(worker, STAGE_JOINED, "weft_descriptor", &inner);

	if (!rc && !descriptor)
		rc = error_set(&inner, ERROR_USAGE, "weft_descriptor: descriptor is NULL");
	if (!rc)
		rc = watch_open(&worker->watch, worker->log_name, worker->domain, worker->control,
				descriptor, &inner);
	return worker_result(rc, &inner, error);
}

int weft_poll(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = worker_stage(worker, STAGE_JOINED, "weft_poll", &inner);

	if (!rc) {
		watch_drain(&worker->watch);
		rc = health_check(&worker->health, &inner);
		if (worker->health.failed)
			waiter_lost(&worker->waiter);
		join_let_go(worker, true); /* does not wait for the controller */
	}
	return worker_result(rc, &inner, error);
}

/* The flag first: whoever is woken looks at it. Waking the transport ends a transfer that waits for
 * its peer; it is a store and a system call, so a signal handler may. */
void weft_interrupt(weft_worker *worker)
{
	int before = errno;

	if (!worker)
		return;
	atomic_store(&worker->health.interrupted, true);
	if (worker->pid == getpid()) {
		transport_domain_interrupt(worker->domain);
		watch_tell(&worker->watch);
	}
	errno = before;
}

void weft_interrupt_clear(weft_worker *worker)
{
	if (worker)
		atomic_store(&worker->health.interrupted, false);
}

/* A trainer that was late with the last version writes it still. */
static int let_all_end(struct weft_worker *worker, struct error *error)
{
	int rc = 0;

	if (worker->self.role == ROLE_INFERENCE && worker->waiter.epoch && !worker->pausing &&
	    !worker->health.failed)
		rc = waiter_clear(&worker->waiter, 0, 0, true, error);
	return rc == WAITER_PAUSES ? 0 : rc;
}

int weft_leave(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = worker_stage(worker, STAGE_JOINED, "weft_leave", &inner);

	if (!rc)
		rc = post_load_outside(&worker->waiter.post_load, "weft_leave", &inner);
	if (!rc && sender_open_version(&worker->sender))
		rc = error_set(&inner, ERROR_STATE,
			       "weft_leave: update %llu is open; end or abort "
			       "it first",
			       (unsigned long long)sender_open_version(&worker->sender));
	if (!rc)
		rc = let_all_end(worker, &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	worker->stage = STAGE_LEFT;
	return worker_result(control_leave(worker->control, true, LEAVE_MS, &inner), &inner, error);
}

/* A host that closes after a call that failed could not go on because of it. */
static void leave_at_close(struct weft_worker *worker)
{
	bool interrupted = atomic_load(&worker->health.interrupted);
	bool done = !worker->health.failed && worker->stage == STAGE_JOINED && !interrupted &&
		    !sender_open_version(&worker->sender) && !worker->sender.unfinished &&
		    !worker->waiter.unfinished;
	struct error error;

	if (done && let_all_end(worker, &error))
		log_warn_of(error.code, "weft_close: %s", error.text);
	if (!done && worker->stage != STAGE_LEFT && worker->is_unhandled)
		worker_tell_unhandled(worker);
	if (worker->stage != STAGE_JOINED && worker->stage != STAGE_JOINING)
		return;
	if (control_leave(worker->control, done, LEAVE_MS, &error))
		log_debug("%s: %s", worker->self_name, error.text);
}

int weft_close(weft_worker **where)
{
	struct weft_worker *worker;
	struct error error;
	int rc;

	if (!where || !*where)
		return 0;
	worker = *where;
	*where = NULL;
	log_as(worker->log_name);
	/* A forked child has neither the control thread nor a part in the job: what it inherited
	 * goes when it ends, and whatever it did here would be done to its parent. */
	if (worker->pid && worker->pid != getpid())
		return 0;
	watch_close(&worker->watch);
	if (worker->control)
		leave_at_close(worker);
	metrics_close(worker);
	if (worker->device) /* before what may wait for the device */
		device_let_go(worker->device);
	join_undo(worker);
	send_plan_drop_kept(&worker->kept, worker->device);
	if (!worker->device || device_closes(worker->device)) /* else kernels may touch it */
		beside_close(&worker->beside);
	params_close(&worker->params);
	ranges_close(&worker->ranges);
	rc = declare_check_memory(worker, &error);
	if (rc)
		log_error_of(error.code, "weft_close: %s", error.text);
	/* the control thread may interrupt the domain until it has ended; and the core owns the
	 * plan that everything above points into */
	control_close(&worker->control);
	trace_close(&worker->trace);
	if (!worker->device || !worker->device->live->left)
		transport_domain_close(&worker->domain); /* else some of its regions stay */
	device_close(&worker->device);
	declare_fini(worker);
	pool_free(&worker->texts);
	sender_fini(&worker->stand_in.sender);
	sender_fini(&worker->sender);
	health_fini(&worker->health);
	memory_free(worker);
	return rc;
}
