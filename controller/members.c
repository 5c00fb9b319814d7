/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/state.h"

#include <stdio.h>
#include <string.h>

#define RANGES_SHOWN 8
#define NAMES_KEPT   64

char *slot_text(const struct slot *slot, char out[SLOT_TEXT_BYTES])
{
	char name[MEMBER_TEXT_BYTES];

	snprintf(out, SLOT_TEXT_BYTES, "%s (host %s, pid %llu)", member_text(slot->who, name),
		 slot->hello.host ? slot->hello.host : "?", (unsigned long long)slot->hello.pid);
	return out;
}

void slot_phase(struct controller *controller, struct slot *slot, enum phase phase)
{
	controller->phases[slot->phase]--;
	controller->phases[phase]++;
	slot->phase = phase;
}

static void free_endpoints(struct message_endpoints *endpoints)
{
	struct message message = {.type = MESSAGE_ENDPOINTS, .u.endpoints = *endpoints};

	message_fini(&message);
	*endpoints = (struct message_endpoints){0};
}

void slot_clear(struct controller *controller, struct slot *slot)
{
	struct message hello = {.type = MESSAGE_HELLO, .u.hello = slot->hello};
	struct message declare = {.type = MESSAGE_DECLARE, .u.declare = slot->declare};
	struct member who = slot->who;
	char *refused = slot->refused;

	message_fini(&hello);
	message_fini(&declare);
	free_endpoints(&slot->endpoints);
	memory_free(slot->peers);
	slot_phase(controller, slot, PHASE_ABSENT);
	*slot = (struct slot){.who = who, .refused = refused};
}

/* By incarnation and not by connection: a connection may be made anew, with another id. */
struct slot *members_find(struct controller *controller, uint64_t incarnation)
{
	char name[17];
	struct slot *slot;
	uint32_t index;

	snprintf(name, sizeof(name), "%016llx", (unsigned long long)incarnation);
	if (!strmap_get(&controller->by_incarnation, name, &index))
		return NULL;
	slot = &controller->slots[index];
	/* an earlier holder of the rank is still in the map */
	return slot->phase != PHASE_ABSENT && slot->hello.incarnation == incarnation ? slot : NULL;
}

static int remember(struct controller *controller, uint64_t incarnation, uint32_t index)
{
	char **name = array_push(&controller->names);

	if (!name)
		return -ERROR_MEMORY;
	*name = memory_format("%016llx", (unsigned long long)incarnation);
	return *name && strmap_put(&controller->by_incarnation, *name, index) ? 0 : -ERROR_MEMORY;
}

/* Whoever joins again and again leaves a name each time: those who are gone are forgotten
 * before they outnumber those who are here. */
static int forget_former_names(struct controller *controller)
{
	int rc = 0;

	if (controller->names.count < NAMES_KEPT + 2 * (size_t)controller->slot_count)
		return 0;
	strmap_fini(&controller->by_incarnation);
	for (size_t i = 0; i < controller->names.count; i++)
		memory_free(controller->names.items[i]);
	array_free(&controller->names);
	for (uint32_t i = 0; !rc && i < controller->slot_count; i++)
		if (controller->slots[i].phase != PHASE_ABSENT)
			rc = remember(controller, controller->slots[i].hello.incarnation, i);
	return rc;
}

static int welcome(struct controller *controller, const struct slot *slot, struct error *error)
{
	struct message *message = action_send(controller, slot->peer, MESSAGE_WELCOME);

	if (!message)
		return no_memory(error);
	message->u.welcome.heartbeat_ms = controller->options.heartbeat_ms;
	message->u.welcome.lost_ms = controller->options.lost_ms;
	message->u.welcome.controller = controller->options.incarnation;
	return 0;
}

static int join(struct controller *controller, struct slot *slot, const char *peer,
		struct message *message, struct error *error)
{
	char who[SLOT_TEXT_BYTES];

	if (forget_former_names(controller) || remember(controller, message->u.hello.incarnation,
							(uint32_t)(slot - controller->slots)))
		return no_memory(error);
	snprintf(slot->peer, sizeof(slot->peer), "%s", peer);
	if (controller->phases[PHASE_ABSENT] == controller->slot_count) {
		controller->since_ms = controller->now_ms; /* the wait starts with the first */
		controller->warned = false;
	}
	slot->hello = message->u.hello;
	message->u.hello = (struct message_hello){0};
	slot->heard_ms = controller->now_ms;
	slot_phase(controller, slot, PHASE_JOINED);
	if (action_log(controller, false, "%s joins, %u of %u here", slot_text(slot, who),
		       controller->slot_count - controller->phases[PHASE_ABSENT],
		       controller->slot_count))
		return no_memory(error);
	return welcome(controller, slot, error);
}

static int refuse(struct controller *controller, const char *peer, const struct message *message,
		  const struct error *why, struct error *error)
{
	if (action_noise(controller, "refused: %s", why->text))
		return no_memory(error);
	return action_refuse(controller, peer, message->epoch, why, error);
}

static int out_of_range(struct controller *controller, const char *peer,
			const struct message *message, uint32_t world, struct error *error)
{
	const struct message_hello *hello = &message->u.hello;
	char spec[PARALLEL_TEXT_BYTES], name[MEMBER_TEXT_BYTES];
	bool trainer = hello->role == ROLE_TRAINER;
	struct error why;

	if (trainer)
		train_spec_text(&controller->options.train, spec);
	else
		infer_spec_text(&controller->options.infer, spec);
	error_set(&why, ERROR_CONFIG,
		  "there is no %s in this job (host %s, pid %llu): the controller was started "
		  "with --%s %.300s, which has ranks 0..%u; start fewer or change the spec",
		  member_text((struct member){hello->role, hello->rank}, name), hello->host,
		  (unsigned long long)hello->pid, trainer ? "train" : "infer", spec, world - 1);
	return refuse(controller, peer, message, &why, error);
}

static void restarted_text(struct error *why, const struct controller *controller,
			   const struct slot *slot)
{
	char who[SLOT_TEXT_BYTES];

	error_set(why, ERROR_PEER_LOST,
		  "%s was restarted: silent for %.1f s, and a new process claims its rank; "
		  "restart the whole job",
		  slot_text(slot, who), (double)(controller->now_ms - slot->heard_ms) / 1000.0);
}

bool members_claim_open(const struct controller *controller, const struct slot *slot)
{
	return slot->claim && slot->heard_ms < slot->claim_ms + controller->options.heartbeat_ms;
}

/* Several processes may claim one rank in turn: the holder has to show itself once for all of
 * them, and not once more after each. A claim that it outlived long ago is over. */
static bool claim_begins(const struct controller *controller, const struct slot *slot)
{
	uint64_t fresh = 2 * (uint64_t)controller->options.heartbeat_ms;

	if (!slot->claim)
		return true;
	return !members_claim_open(controller, slot) &&
	       controller->now_ms >= slot->heard_ms + fresh;
}

/* Another incarnation wants a rank that is held. Who is right shows within a heartbeat or
 * lost_ms; until then the claim is not answered, and the newcomer says hello again. */
static int claim(struct controller *controller, struct slot *slot, const char *peer,
		 struct message *message, struct error *error)
{
	const struct message_hello *hello = &message->u.hello;
	char who[SLOT_TEXT_BYTES];
	struct error why;

	if (controller->state == CONTROLLER_FAILED)
		return refuse(controller, peer, message, &controller->failure, error);
	if (slot->phase == PHASE_LEFT) {
		error_set(&why, ERROR_DUPLICATE_RANK,
			  "%s has done its work and left this job; the process on host %s, pid "
			  "%llu comes too late",
			  slot_text(slot, who), hello->host, (unsigned long long)hello->pid);
		return refuse(controller, peer, message, &why, error);
	}
	if (slot->claim != hello->incarnation) {
		bool anew = claim_begins(controller, slot);

		slot->claim = hello->incarnation;
		if (anew)
			slot->claim_ms = controller->now_ms;
		if (anew &&
		    action_noise(controller,
				 "%s is claimed by another process (host %s, pid %llu): waiting "
				 "for a heartbeat of the first",
				 slot_text(slot, who), hello->host, (unsigned long long)hello->pid))
			return no_memory(error);
	}
	if (!members_claim_open(controller, slot)) {
		error_set(&why, ERROR_DUPLICATE_RANK,
			  "%s holds its rank and is alive, so the process on host %s, pid %llu is "
			  "refused; start each rank once",
			  slot_text(slot, who), hello->host, (unsigned long long)hello->pid);
		slot->claim = 0;
		return refuse(controller, peer, message, &why, error);
	}
	if (controller->now_ms < slot->heard_ms + controller->options.lost_ms)
		return 0;
	if (controller->state != CONTROLLER_GATHER) {
		restarted_text(&why, controller, slot);
		return ending_fail(controller, slot, &why, error);
	}
	if (action_log(controller, true, "%s fell silent; host %s, pid %llu takes its place",
		       slot_text(slot, who), hello->host, (unsigned long long)hello->pid) ||
	    declarations_forget(controller, slot, error))
		return no_memory(error);
	slot_clear(controller, slot);
	return join(controller, slot, peer, message, error);
}

int members_hello(struct controller *controller, const char *peer, struct message *message,
		  struct error *error)
{
	const struct message_hello *hello = &message->u.hello;
	uint32_t trainers = controller->options.train.world;
	uint32_t world = hello->role == ROLE_TRAINER ? trainers : controller->slot_count - trainers;
	struct slot *slot;

	if (hello->rank >= world)
		return out_of_range(controller, peer, message, world, error);
	slot = &controller
			->slots[hello->role == ROLE_TRAINER ? hello->rank : trainers + hello->rank];
	if (slot->phase == PHASE_ABSENT) {
		if (controller->state == CONTROLLER_FAILED)
			return refuse(controller, peer, message, &controller->failure, error);
		return join(controller, slot, peer, message, error);
	}
	if (slot->hello.incarnation != hello->incarnation)
		return claim(controller, slot, peer, message, error);
	snprintf(slot->peer, sizeof(slot->peer), "%s", peer);
	slot->heard_ms = controller->now_ms;
	return controller->state == CONTROLLER_FAILED
		       ? ending_answer(controller, slot, message, error)
		       : welcome(controller, slot, error);
}

static int beat(struct controller *controller, const struct slot *slot, uint64_t sequence,
		struct error *error)
{
	struct message *message = action_send(controller, slot->peer, MESSAGE_HEARTBEAT);

	if (!message)
		return no_memory(error);
	message->u.heartbeat.sequence = sequence;
	return 0;
}

int members_heartbeat(struct controller *controller, struct slot *slot, struct message *message,
		      struct error *error)
{
	if (message->u.heartbeat.version > slot->version)
		slot->version = message->u.heartbeat.version;
	if (beat(controller, slot, message->u.heartbeat.sequence, error))
		return -ERROR_MEMORY;
	return controller->state == CONTROLLER_GATHER ? declarations_maybe_plan(controller, error)
						      : 0;
}

int members_leave(struct controller *controller, struct slot *slot, struct message *message,
		  struct error *error)
{
	char who[SLOT_TEXT_BYTES];
	struct error why;

	if (beat(controller, slot, 0, error))
		return -ERROR_MEMORY;
	if (slot->phase == PHASE_LEFT)
		return 0;
	if (!message->u.leave.done || controller->state != CONTROLLER_RUN) {
		error_set(&why, ERROR_PEER_LOST, "%s left %s", slot_text(slot, who),
			  message->u.leave.done
				  ? "before the job ran"
				  : "before its work was done (interrupted or failed)");
		slot_phase(controller, slot, PHASE_LEFT);
		return ending_fail(controller, slot, &why, error);
	}
	slot_phase(controller, slot, PHASE_LEFT);
	if (action_log(controller, false, "%s leaves, its work done, %u of %u still here",
		       slot_text(slot, who),
		       controller->slot_count - controller->phases[PHASE_LEFT],
		       controller->slot_count))
		return no_memory(error);
	if (controller->phases[PHASE_LEFT] < controller->slot_count)
		return 0;
	if (action_log(controller, false, "done: all have left"))
		return no_memory(error);
	return action_exit(controller, NULL, error);
}

/* What a worker only saw at a peer or a clock: the cause may be elsewhere. */
static bool is_symptom(int code)
{
	return code == ERROR_PEER_LOST || code == ERROR_TRANSPORT || code == ERROR_TIMEOUT;
}

/* The worker that has been silent longest, for longer than any that lives; NULL when all of
 * them beat. Workers report a symptom only after two heartbeats, so a dead peer shows here
 * long before its silence alone would end the job. */
static struct slot *most_silent(const struct controller *controller, const struct slot *reporter)
{
	uint64_t least = 2 * (uint64_t)controller->options.heartbeat_ms;
	struct slot *found = NULL;

	for (uint32_t i = 0; i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];

		if (slot == reporter || slot->phase == PHASE_ABSENT || slot->phase == PHASE_LEFT ||
		    controller->now_ms < slot->heard_ms + least ||
		    (found && found->heard_ms <= slot->heard_ms))
			continue;
		found = slot;
	}
	return found;
}

/* The job fails because of the silent one, and not of the worker that ran into it. */
/* A worker that did all its updates and left is no loss; one that still needs it is told so. */
static const struct slot *left_early(const struct controller *controller)
{
	const struct slot *early = NULL;

	for (uint32_t i = 0; i < controller->slot_count; i++) {
		const struct slot *slot = &controller->slots[i];

		if (slot->phase == PHASE_LEFT && (!early || slot->version < early->version))
			early = slot;
	}
	return early;
}

static void left_early_text(struct error *why, const struct slot *early,
			    const struct slot *reporter, const char *text)
{
	char who[SLOT_TEXT_BYTES], whom[SLOT_TEXT_BYTES];

	error_set(
		why, ERROR_PEER_LOST,
		"%s did its work and left (last heard of at version %llu), but %s is at version "
		"%llu and goes on: give all workers the same number of updates (--updates); it says: %.400s",
		slot_text(early, who), (unsigned long long)early->version,
		slot_text(reporter, whom), (unsigned long long)reporter->version, text);
}

static int blame_silent(struct controller *controller, struct slot *silent,
			const struct slot *reporter, const char *text, struct error *error)
{
	char who[SLOT_TEXT_BYTES], whom[SLOT_TEXT_BYTES];
	struct error why;

	error_set(&why, ERROR_PEER_LOST,
		  "%s was lost: silent for %.1f s, last heard of at version %llu; %s says: %.500s",
		  slot_text(silent, who), (double)(controller->now_ms - silent->heard_ms) / 1000.0,
		  (unsigned long long)silent->version, slot_text(reporter, whom), text);
	slot_phase(controller, silent, PHASE_LOST);
	return ending_fail(controller, silent, &why, error);
}

int members_failure(struct controller *controller, struct slot *slot, struct message *message,
		    struct error *error)
{
	const struct message_failure *failure = &message->u.failure;
	bool running = controller->state == CONTROLLER_RUN;
	char who[SLOT_TEXT_BYTES];
	char refused[ERROR_TEXT_BYTES] = "";
	struct text missing = {0};
	const struct slot *early = NULL;
	struct slot *silent = NULL;
	struct error why;

	if (failure->version > slot->version)
		slot->version = failure->version;
	if (controller->state != CONTROLLER_GATHER && is_symptom(failure->code))
		silent = most_silent(controller, slot);
	if (silent)
		return blame_silent(controller, silent, slot, failure->text, error);
	if (running && is_symptom(failure->code))
		early = left_early(controller);
	if (!running && failure->code == ERROR_TIMEOUT)
		ending_missing(controller, &missing); /* which the worker could not know */
	if (missing.bytes)
		ending_refused(controller, refused, sizeof(refused));
	if (early)
		left_early_text(&why, early, slot, failure->text);
	else if (missing.bytes)
		error_set(&why, ERROR_TIMEOUT, "waiting for %.300s%.400s; %s has given up: %.400s",
			  text_string(&missing), refused, slot_text(slot, who), failure->text);
	else
		error_set(&why,
			  error_known(failure->code) ? (enum error_code)failure->code
						     : ERROR_INTERNAL,
			  "%s failed at version %llu: %.700s", slot_text(slot, who),
			  (unsigned long long)slot->version, failure->text);
	text_fini(&missing);
	return ending_fail(controller, early ? early : slot, &why, error);
}

static int lost(struct controller *controller, struct slot *slot, struct error *error)
{
	char who[SLOT_TEXT_BYTES];
	struct text versions = {0};
	struct error why;
	int rc;

	if (controller->state == CONTROLLER_GATHER) {
		rc = action_log(controller, true,
				"%s is silent for %.1f s: its place is free again",
				slot_text(slot, who),
				(double)(controller->now_ms - slot->heard_ms) / 1000.0);
		if (!rc)
			rc = declarations_forget(controller, slot, error);
		slot_clear(controller, slot);
		return rc ? no_memory(error) : 0;
	}
	members_versions(controller, &versions);
	if (members_claim_open(controller, slot))
		restarted_text(&why, controller, slot);
	else
		error_set(&why, ERROR_PEER_LOST,
			  "%s was lost: silent for %.1f s, last heard of at version %llu (%s)",
			  slot_text(slot, who),
			  (double)(controller->now_ms - slot->heard_ms) / 1000.0,
			  (unsigned long long)slot->version, text_string(&versions));
	text_fini(&versions);
	slot_phase(controller, slot, PHASE_LOST);
	return ending_fail(controller, slot, &why, error);
}

int members_silence(struct controller *controller, struct error *error)
{
	uint64_t limit = controller->options.lost_ms;

	for (uint32_t i = 0; i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];
		int rc;

		if (controller->state > CONTROLLER_RUN)
			return 0;
		if (slot->phase == PHASE_ABSENT || slot->phase == PHASE_LEFT ||
		    controller->now_ms < slot->heard_ms + limit)
			continue;
		rc = lost(controller, slot, error);
		if (rc)
			return rc;
	}
	return 0;
}

static bool ranges(const struct controller *controller, enum role role, enum phase phase,
		   struct text *text, bool first)
{
	uint32_t trainers = controller->options.train.world;
	uint32_t base = role == ROLE_TRAINER ? 0 : trainers;
	uint32_t world = role == ROLE_TRAINER ? trainers : controller->slot_count - trainers;
	uint32_t shown = 0, skipped = 0;

	for (uint32_t rank = 0; rank < world; rank++) {
		uint32_t end = rank;

		if (controller->slots[base + rank].phase != phase)
			continue;
		while (end + 1 < world && controller->slots[base + end + 1].phase == phase)
			end++;
		if (shown == RANGES_SHOWN) {
			skipped += end - rank + 1;
		} else {
			if (shown == 0)
				text_format(text, "%s%s ", first ? "" : ", ", role_name(role));
			text_format(text, "%s%u", shown ? "," : "", rank);
			if (end > rank)
				text_format(text, "..%u", end);
			shown++;
		}
		rank = end;
	}
	if (skipped)
		text_format(text, " and %u more", skipped);
	if (shown)
		text_format(text, " of %u", world);
	return shown != 0;
}

bool members_in_phase(const struct controller *controller, enum phase phase, struct text *text)
{
	bool trainers = ranges(controller, ROLE_TRAINER, phase, text, true);

	return ranges(controller, ROLE_INFERENCE, phase, text, !trainers) || trainers;
}

void members_versions(const struct controller *controller, struct text *text)
{
	static const char *const words[ROLE_COUNT] = {"trainers", "inference ranks"};

	for (int role = 0; role < ROLE_COUNT; role++) {
		uint64_t low = UINT64_MAX, high = 0;

		for (uint32_t i = 0; i < controller->slot_count; i++) {
			const struct slot *slot = &controller->slots[i];

			if ((int)slot->who.role != role)
				continue;
			low = slot->version < low ? slot->version : low;
			high = slot->version > high ? slot->version : high;
		}
		text_format(text, "%s%s at version %llu", role ? ", " : "", words[role],
			    (unsigned long long)low);
		if (high > low)
			text_format(text, "..%llu", (unsigned long long)high);
	}
}
