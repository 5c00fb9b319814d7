/* SPDX-License-Identifier: Apache-2.0
 *
 * receive.c -- opened, counted, verified, loaded, published: one version of an inference rank.
 */
#include "worker/update/receive.h"

#include "base/assert.h"
#include "base/text.h"
#include "worker/update/path.h"

#define NAMED_MAX 4 /* missing trainers named in a message */

void receiver_init(struct receiver *receiver, const struct receive_peer *peers, size_t peer_count,
		   struct receive_link *links, struct digest plan, bool sums)
{
	*receiver = (struct receiver){.peers = peers,
				      .peer_count = peer_count,
				      .links = links,
				      .plan = plan,
				      .sums = sums};
}

void receiver_meets(struct receiver *receiver, bool staged)
{
	receiver->meets = true;
	receiver->staged = staged;
}

static void note_past(struct receiver *receiver, uint64_t version)
{
	if (version > receiver->past)
		receiver->past = version;
}

static bool in_range(const struct receiver *receiver, uint64_t version)
{
	return version >= receiver->min_version && version <= receiver->max_version;
}

/* A rank that no trainer writes to publishes what it is asked for. */
static uint64_t ended_version(const struct receiver *receiver)
{
	return receiver->peer_count ? receiver->links[0].end.version : receiver->min_version;
}

uint64_t receive_promised(const struct receiver *receiver)
{
	return receiver->phase == RECEIVE_PREPARED ? ended_version(receiver) : 0;
}

/* ---- failing ---- */

/* Its version cannot come any more. */
static void forget(struct receiver *receiver)
{
	for (size_t p = 0; p < receiver->peer_count; p++) {
		if (receiver->links[p].ended || receiver->links[p].ending)
			note_past(receiver, receiver->links[p].end.version);
		receiver->links[p].ended = receiver->links[p].ending = false;
	}
	receiver->joined = false;
}

static struct receive_step fail(struct receiver *receiver, bool broken)
{
	/* after a deadline or an interrupt the version can still come; after anything else what was
	 * ended is past */
	bool may_come =
		receiver->error.code == ERROR_TIMEOUT || receiver->error.code == ERROR_INTERRUPTED;

	if (!may_come)
		forget(receiver);
	/* whoever is loaded has promised to show it once the others are */
	if (!may_come || receiver->phase != RECEIVE_PREPARED)
		receiver->phase = RECEIVE_CLOSED;
	return (struct receive_step){.kind = RECEIVE_FAIL, .broken = broken};
}

static void add_missing(struct text *missing, const struct receive_peer *peer,
			const struct receive_link *link)
{
	text_format(missing, "%s%s%s", missing->bytes ? ", " : "", peer->name,
		    link->gone ? " (gone)" : "");
	if (link->landed && peer->deltas)
		text_format(missing, " (%llu bytes that land, or differ, are here)",
			    (unsigned long long)link->taken_bytes);
	else if (link->landed)
		text_format(missing, " (%llu of its %llu bytes that land are here)",
			    (unsigned long long)link->taken_bytes,
			    (unsigned long long)peer->landed_bytes);
}

static struct receive_step late(struct receiver *receiver)
{
	struct text missing = {0}, update = {0}, paths = {0};
	uint64_t version = receiver->wanted;
	bool landed = false;
	size_t count = 0;

	for (size_t p = 0; p < receiver->peer_count; p++) {
		if (receiver->links[p].ended) {
			version = receiver->links[p].end.version;
			continue;
		}
		landed = landed || receiver->links[p].landed;
		if (++count <= NAMED_MAX)
			add_missing(&missing, &receiver->peers[p], &receiver->links[p]);
		path_add(&paths, receiver->peers[p].path);
	}
	if (count > NAMED_MAX)
		text_format(&missing, " and %zu more", count - NAMED_MAX);
	if (version)
		text_format(&update, "update %llu", (unsigned long long)version);
	else
		text_add(&update, "the next update");
	error_set(&receiver->error, ERROR_TIMEOUT,
		  "%s: no %s from %s for %.1f s; %zu of %zu trainers done; raise the update "
		  "timeout (--update-timeout) if this is expected%s",
		  text_string(&update), landed ? "end" : "signal", text_string(&missing),
		  (double)(receiver->deadline_ns - receiver->began_ns) / 1e9,
		  receiver->peer_count - count, receiver->peer_count, text_string(&paths));
	text_fini(&paths);
	text_fini(&missing);
	text_fini(&update);
	return fail(receiver, false);
}

/* ---- opening ---- */

/* A permission for who holds none, the new range for who does. */
static struct receive_step accept(struct receiver *receiver, uint32_t peer)
{
	struct receive_link *link = &receiver->links[peer];

	if (!link->outstanding) {
		link->opening++;
		link->landed = link->taken = link->taken_bytes = 0;
		/* by one that is out longer another version may be written */
		link->accepted = true;
	}
	link->outstanding = true;
	link->ended = link->ending = link->asked = false;
	link->spared = link->released = false;
	return (struct receive_step){
		.kind = RECEIVE_ACCEPT, .peer = peer, .until_ns = receiver->deadline_ns};
}

static void open_version(struct receiver *receiver, const struct receive_event *event)
{
	uint64_t last = event->published > receiver->past ? event->published : receiver->past;
	uint64_t first;

	/* a wait that takes the place of one that was only tried, or goes on where it was */
	WEFT_ASSERT(receiver->phase == RECEIVE_CLOSED || receiver->phase == RECEIVE_COUNTING ||
		    receiver->meets);
	receiver->began_ns = event->now_ns;
	receiver->deadline_ns = event->deadline_ns;
	if (receiver->phase == RECEIVE_PREPARED) {
		if (!event->version || event->version == ended_version(receiver))
			return;
		forget(receiver); /* others decide that: see commit.h */
	}
	receiver->at = 0;
	receiver->phase = RECEIVE_OPENING;
	if (receiver->joined && receiver->wanted == event->version)
		return;
	receiver->joined = false;
	receiver->wanted = event->version;
	first = event->version ? event->version : last + 1;
	for (size_t p = 0; p < receiver->peer_count; p++)
		receiver->links[p].accepted &= first == receiver->min_version;
	receiver->min_version = first;
	receiver->max_version = event->version ? event->version : UINT64_MAX;
	if (receiver->meets)
		receiver->phase = RECEIVE_JOINING;
}

/* Trainers whose END for this very version came during a wait that timed out stay counted. */
static bool counted(const struct receiver *receiver, uint32_t peer)
{
	const struct receive_link *link = &receiver->links[peer];

	return (link->ended || link->ending) && in_range(receiver, link->end.version);
}

/* ---- counting ---- */

/* by: that has written it, into its own window: p, or who stands in for it. */
static int check_end(struct receiver *receiver, uint32_t p, uint32_t by,
		     const struct update_end *end)
{
	const struct receive_peer *peer = &receiver->peers[p];
	uint64_t landed = receiver->links[by].landed;
	uint32_t sums = receiver->sums ? peer->pieces : 0;
	struct error *error = &receiver->error;

	if (!digest_equal(end->plan, receiver->plan))
		return error_set(error, ERROR_MESSAGE, "%s: it ended an update of another plan",
				 peer->name);
	if (end->bytes != peer->bytes || end->pieces != peer->pieces)
		return error_set(error, ERROR_MESSAGE,
				 "%s ended update %llu with %llu bytes in %u "
				 "pieces; the plan has %llu in %u",
				 peer->name, (unsigned long long)end->version,
				 (unsigned long long)end->bytes, end->pieces,
				 (unsigned long long)peer->bytes, peer->pieces);
	if (end->landed < landed || (end->landed && !peer->lands))
		return error_set(error, ERROR_MESSAGE,
				 "%s ended update %llu with %llu entries of its window, and %llu "
				 "had landed",
				 peer->name, (unsigned long long)end->version,
				 (unsigned long long)end->landed, (unsigned long long)landed);
	if (end->sums != sums)
		return error_set(error, ERROR_MESSAGE, "%s sent %u checksums for %u pieces",
				 peer->name, end->sums, sums);
	if (end->version > receiver->max_version)
		return error_set(error, ERROR_VERSION,
				 "%s ended update %llu, but update %llu is waited for", peer->name,
				 (unsigned long long)end->version,
				 (unsigned long long)receiver->max_version);
	for (size_t i = 0; i < receiver->peer_count; i++) {
		const struct receive_link *other = &receiver->links[i];

		if ((other->ended || other->ending) && other->end.version != end->version)
			return error_set(error, ERROR_VERSION,
					 "%s ended update %llu, but %s ended "
					 "update %llu; all trainers begin the same version",
					 peer->name, (unsigned long long)end->version,
					 receiver->peers[i].name,
					 (unsigned long long)other->end.version);
	}
	return 0;
}

/* What landed is all that the plan says. */
static int check_landed(struct receiver *receiver, uint32_t p, uint32_t by)
{
	const struct receive_peer *peer = &receiver->peers[p];
	const struct receive_link *link = &receiver->links[by];
	const struct update_end *end = &receiver->links[p].end;
	uint64_t beside = end->beside_bytes;

	if (beside > (peer->deltas ? peer->bytes - peer->landed_bytes : 0))
		return error_set(
			&receiver->error, ERROR_MESSAGE,
			"%s ended update %llu with %llu bytes that landed and are written by the plan; it has "
			"%llu of those%s",
			peer->name, (unsigned long long)end->version, (unsigned long long)beside,
			(unsigned long long)(peer->bytes - peer->landed_bytes),
			peer->deltas ? "" : ", and none may land");
	if (!peer->lands || link->taken_bytes == peer->landed_bytes + beside)
		return 0;
	return error_set(&receiver->error, ERROR_MESSAGE,
			 "%s ended update %llu, and %llu bytes had landed; the plan has %llu",
			 peer->name, (unsigned long long)end->version,
			 (unsigned long long)link->taken_bytes,
			 (unsigned long long)(peer->landed_bytes + beside));
}

static bool all_ended(const struct receiver *receiver)
{
	for (size_t p = 0; p < receiver->peer_count; p++)
		if (!receiver->links[p].ended)
			return false;
	return true;
}

/* ---- in order ---- */

static struct receive_step published(struct receiver *receiver)
{
	uint64_t version = ended_version(receiver);

	for (size_t p = 0; p < receiver->peer_count; p++) {
		WEFT_ASSERT(receiver->links[p].ended);
		WEFT_ASSERT_OP(receiver->links[p].end.version, ==, version);
		WEFT_ASSERT(!receiver->links[p].outstanding || receiver->links[p].stood ||
			    receiver->links[p].stands);
		receiver->links[p].ended = receiver->links[p].accepted = false;
	}
	receiver->phase = RECEIVE_CLOSED;
	receiver->joined = false;
	return (struct receive_step){.kind = RECEIVE_PUBLISH, .version = version};
}

/* Who has not ended is gone, and somebody has who is not: what he ended stays without the rest. Of what only those have ended who
 * are gone nobody knows whether it is begun again. */
static const struct receive_peer *lacks(const struct receiver *receiver, uint64_t *version)
{
	const struct receive_peer *missing = NULL;

	*version = 0;
	for (size_t p = 0; p < receiver->peer_count; p++) {
		const struct receive_link *link = &receiver->links[p];
		bool ended = link->ended || link->ending;

		if (!ended && receiver->hedge_ns && !receiver->peers[p].pieces)
			continue; /* it has nothing to send */
		if (!ended && (!link->gone || receive_may_be_stood_in_for(receiver, (uint32_t)p)))
			return NULL;
		if (!ended)
			missing = &receiver->peers[p];
		else if (!link->gone)
			*version = link->end.version;
	}
	return *version ? missing : NULL;
}

static struct receive_step give_up(struct receiver *receiver, const struct receive_peer *gone,
				   uint64_t version)
{
	error_set(&receiver->error, ERROR_ABORTED,
		  "update %llu was given up: %s has left the job, and had not sent all of it",
		  (unsigned long long)version, gone->name);
	return fail(receiver, false);
}

bool receive_is_alone(const struct receiver *receiver)
{
	bool all = true;

	if (receiver->phase != RECEIVE_COUNTING)
		return false;
	for (size_t p = 0; p < receiver->peer_count; p++) {
		if (!receiver->links[p].gone)
			return false;
		all = all && (receiver->links[p].ended || receiver->links[p].ending);
	}
	return !all;
}

void receive_start_over(struct receiver *receiver)
{
	for (size_t p = 0; p < receiver->peer_count; p++)
		receiver->links[p].ended = receiver->links[p].ending = receiver->links[p].stood =
			false;
	receiver->phase = RECEIVE_JOINING;
	receiver->joined = false;
}

/* All that it sends is here, and some of it in its window still. */
static bool any_ending(const struct receiver *receiver)
{
	for (size_t p = 0; p < receiver->peer_count; p++)
		if (receiver->links[p].ending)
			return true;
	return false;
}

/* A trainer whose window holds something: it waits for room there, or it has ended. */
static bool take(struct receiver *receiver, struct receive_step *step)
{
	uint32_t count = (uint32_t)receiver->peer_count;

	for (uint32_t i = 1; i <= count; i++) {
		uint32_t p = (receiver->taken_last + i) % count;

		if (receiver->links[p].landed == receiver->links[p].taken)
			continue;
		receiver->taken_last = p;
		*step = (struct receive_step){
			.kind = RECEIVE_TAKE, .peer = p, .until_ns = receiver->deadline_ns};
		return true;
	}
	return false;
}

static struct receive_step meet(const struct receiver *receiver, enum update_round round)
{
	return (struct receive_step){.kind = RECEIVE_MEET,
				     .round = round,
				     .version = round == MEET_OPEN ? receiver->wanted
								   : ended_version(receiver),
				     .until_ns = receiver->deadline_ns};
}

static struct receive_step load(struct receiver *receiver)
{
	receiver->phase = RECEIVE_LOADING;
	return (struct receive_step){.kind = RECEIVE_LOAD, .version = ended_version(receiver)};
}

static struct receive_step go_on(struct receiver *receiver, uint64_t now_ns)
{
	const struct receive_peer *gone;
	struct receive_step step;
	uint64_t version;

	switch (receiver->phase) {
	case RECEIVE_JOINING:
		return meet(receiver, MEET_OPEN);
	case RECEIVE_OPENING:
		while (receiver->at < receiver->peer_count)
			if (!counted(receiver, receiver->at++) &&
			    !receiver->links[receiver->at - 1].gone)
				return accept(receiver, receiver->at - 1);
		receiver->phase = RECEIVE_COUNTING;
		/* fall through */
	case RECEIVE_COUNTING:
		gone = lacks(receiver, &version);
		if (gone)
			return give_up(receiver, gone, version);
		if (now_ns >= receiver->deadline_ns && !all_ended(receiver) &&
		    !any_ending(receiver))
			return late(receiver);
		if (take(receiver, &step) || receive_hedge(receiver, now_ns, &step))
			return step;
		if (!all_ended(receiver))
			return (struct receive_step){.kind = RECEIVE_WAIT,
						     .until_ns = receive_hedge_until(receiver)};
		receiver->phase = RECEIVE_VERIFYING;
		return (struct receive_step){.kind = RECEIVE_VERIFY,
					     .version = ended_version(receiver)};
	case RECEIVE_VERIFYING:
		if (!receiver->meets || !receiver->staged)
			return load(receiver);
		receiver->phase = RECEIVE_CLOSING;
		/* fall through */
	case RECEIVE_CLOSING:
		return meet(receiver, MEET_CLOSE);
	case RECEIVE_LOADING:
		if (!receiver->meets)
			return published(receiver);
		receiver->phase = RECEIVE_PREPARED;
		/* fall through */
	case RECEIVE_PREPARED:
		return meet(receiver, MEET_PUBLISH);
	case RECEIVE_CLOSED:
		break;
	}
	error_set(&receiver->error, ERROR_INTERNAL, "no update is waited for");
	return fail(receiver, false);
}

/* All that a trainer sent is here, and where it belongs. */
static struct receive_step count(struct receiver *receiver, uint32_t peer)
{
	struct receive_link *link = &receiver->links[peer];

	link->ending = false;
	if (check_landed(receiver, peer, peer)) {
		note_past(receiver, link->end.version);
		return fail(receiver, false);
	}
	link->ended = true;
	return go_on(receiver, 0); /* others may have signalled before the deadline too */
}

/* All that `by` was asked to send in another one's place is here, and where it belongs. */
static struct receive_step count_stand_in(struct receiver *receiver, uint32_t by)
{
	struct receive_link *stand_in = &receiver->links[by];
	uint32_t p = stand_in->stands - 1;
	struct receive_link *late = &receiver->links[p];

	receive_settle(receiver, by);
	if (check_landed(receiver, p, by)) {
		note_past(receiver, late->end.version);
		return fail(receiver, false);
	}
	late->landed = late->taken;
	late->ended = true;
	late->stood = late->outstanding;
	return go_on(receiver, 0);
}

/* It was asked for another one's pieces. Which may be here by now, and of what it did not send nothing is lost. */
static struct receive_step stood_in(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *stand_in = &receiver->links[event->peer];
	uint32_t p = stand_in->stands - 1;
	struct receive_link *late = &receiver->links[p];

	if (event->word == UPDATE_ABORT || stand_in->released || late->ended || late->ending ||
	    event->end->version != stand_in->end.version) {
		receive_settle(receiver, event->peer);
		return go_on(receiver, 0);
	}
	if (check_end(receiver, p, event->peer, event->end)) {
		note_past(receiver, event->end->version);
		receive_settle(receiver, event->peer);
		return fail(receiver, false);
	}
	late->end = *event->end;
	stand_in->outstanding = false;
	stand_in->landed = event->end->landed;
	stand_in->stands_ending = true;
	return stand_in->landed > stand_in->taken ? go_on(receiver, 0)
						  : count_stand_in(receiver, event->peer);
}

static struct receive_step landed(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *link = &receiver->links[event->peer];

	if (!receiver->peers[event->peer].lands) {
		error_set(&receiver->error, ERROR_MESSAGE,
			  "%s says that something landed, and it has no window here",
			  receiver->peers[event->peer].name);
		return fail(receiver, false);
	}
	if (event->landed->entries > link->landed)
		link->landed = event->landed->entries;
	return go_on(receiver, event->now_ns);
}

static struct receive_step taken(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *link = &receiver->links[event->peer];

	WEFT_ASSERT_OP(event->entries, <=, link->landed);
	WEFT_ASSERT_OP(event->entries, >, link->taken);
	link->taken = event->entries;
	link->taken_bytes += event->bytes;
	if (link->stands_ending && link->taken == link->landed)
		return count_stand_in(receiver, event->peer);
	return link->ending && link->taken == link->landed ? count(receiver, event->peer)
							   : go_on(receiver, 0);
}

static struct receive_step ends_late(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *link = &receiver->links[event->peer];

	if (event->word == UPDATE_LANDED)
		return go_on(receiver, 0);
	receive_settle(receiver, event->peer);
	if (event->word == UPDATE_ABORT || event->end->version == link->end.version)
		return go_on(receiver, 0);
	note_past(receiver, link->end.version);
	error_set(
		&receiver->error, ERROR_VERSION,
		"%s ended update %llu, and others update %llu, in its place too; all trainers begin the same version",
		receiver->peers[event->peer].name, (unsigned long long)event->end->version,
		(unsigned long long)link->end.version);
	return fail(receiver, false);
}

static struct receive_step signalled(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *link = &receiver->links[event->peer];
	bool aborted = event->word == UPDATE_ABORT;
	uint64_t version;

	WEFT_ASSERT(link->outstanding);
	if (link->stood) /* all of it is here; what it writes stands there already */
		return ends_late(receiver, event);
	if (event->word == UPDATE_LANDED)
		return landed(receiver, event);
	if (link->stands)
		return stood_in(receiver, event);
	version = aborted ? event->gone->version : event->end->version;
	link->outstanding = false;
	if (version < receiver->min_version) /* late, of an update that was given up here */
		return accept(receiver, event->peer);
	if (aborted) {
		note_past(receiver, version);
		error_set(&receiver->error, ERROR_ABORTED, "update %llu was given up by %s: %s",
			  (unsigned long long)version, receiver->peers[event->peer].name,
			  event->gone->why);
		return fail(receiver, false);
	}
	if (check_end(receiver, event->peer, event->peer, event->end)) {
		note_past(receiver, version); /* it is wrong for good */
		return fail(receiver, false);
	}
	link->ended_ns = event->heard_ns;
	link->end = *event->end;
	link->landed = link->end.landed;
	link->ending = link->landed > link->taken;
	return link->ending ? go_on(receiver, 0) : count(receiver, event->peer);
}

static struct receive_step met(struct receiver *receiver, const struct receive_event *event)
{
	if (receiver->phase == RECEIVE_PREPARED) {
		if (!receiver->peer_count && event->min_version)
			receiver->min_version = event->min_version;
		return published(receiver);
	}
	if (receiver->phase == RECEIVE_CLOSING)
		return load(receiver);
	WEFT_ASSERT_OP(receiver->phase, ==, RECEIVE_JOINING);
	receiver->min_version = event->min_version;
	receiver->max_version = event->max_version;
	receiver->joined = true;
	receiver->phase = RECEIVE_OPENING;
	return go_on(receiver, event->now_ns);
}

/* It ends this rank: true. A trainer that has ended its update may be gone: its bytes are here. */
static bool goes(struct receiver *receiver, const struct receive_event *event)
{
	struct receive_link *link = &receiver->links[event->peer];
	bool ended = link->ended || link->ending;

	if (event->broken)
		return !ended;
	link->gone = true;
	if (!ended || link->stood || link->stands)
		receive_settle(receiver, event->peer);
	return false;
}

struct receive_step receive_next(struct receiver *receiver, const struct receive_event *event)
{
	switch (event->kind) {
	case RECEIVE_MET:
		return met(receiver, event);
	case RECEIVE_OPENS:
		open_version(receiver, event);
		break;
	case RECEIVE_SIGNAL:
		return signalled(receiver, event);
	case RECEIVE_TAKEN:
		return taken(receiver, event);
	case RECEIVE_GONE:
		if (!goes(receiver, event))
			break;
		receiver->error = *event->error;
		return fail(receiver, true);
	case RECEIVE_FAILED:
		receiver->error = *event->error;
		return fail(receiver, event->broken);
	case RECEIVE_ASKS:
		break;
	}
	return go_on(receiver, event->now_ns);
}

int receive_check(const struct receiver *receiver, uint64_t version, uint64_t last, bool tainted,
		  bool *done, struct error *error)
{
	*done = false;
	if (!version)
		return 0;
	if (version < last)
		return error_set(error, ERROR_VERSION,
				 "update %llu is older than %llu, which is published",
				 (unsigned long long)version, (unsigned long long)last);
	if (version != last && version <= receiver->past)
		return error_set(error, ERROR_VERSION,
				 "update %llu cannot come any more: update %llu "
				 "failed here; wait for a later one",
				 (unsigned long long)version, (unsigned long long)receiver->past);
	if (version != last)
		return 0;
	if (tainted)
		return error_set(error, ERROR_VERSION,
				 "update %llu was published, but a later update "
				 "that failed has overwritten it; wait for a later one",
				 (unsigned long long)version);
	*done = true;
	return 0;
}
