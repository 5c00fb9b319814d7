/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/messages.h"

#include <string.h>

/* SAME names the member that differs. */
#define SAME(condition)                    \
	do {                               \
		if (!(condition))          \
			return #condition; \
	} while (0)
#define SAME_NUMBER(name) SAME(a->name == b->name)
#define SAME_TEXT(name)	  SAME(strcmp(a->name, b->name) == 0)
#define SAME_DIGEST(name) SAME(digest_equal(a->name, b->name))
#define SAME_MEMBER(name) SAME(a->name.role == b->name.role && a->name.rank == b->name.rank)
#define SAME_BYTES(name, length)                                              \
	do {                                                                  \
		SAME(a->length == b->length);                                 \
		SAME(!a->length == !a->name && !b->length == !b->name);       \
		SAME(!a->length || memcmp(a->name, b->name, a->length) == 0); \
	} while (0)
#define SAME_EACH(name, count, differ)                                          \
	do {                                                                    \
		SAME(a->count == b->count);                                     \
		for (size_t i_ = 0; i_ < a->count; i_++) {                      \
			const char *what_ = differ(&a->name[i_], &b->name[i_]); \
			if (what_)                                              \
				return what_;                                   \
		}                                                               \
	} while (0)

static const char *tensor_differs(const struct tensor_info *a, const struct tensor_info *b)
{
	SAME_TEXT(name);
	SAME_NUMBER(dtype);
	SAME_NUMBER(dims);
	SAME(memcmp(a->shape, b->shape, a->dims * sizeof(uint64_t)) == 0);
	SAME_NUMBER(bytes);
	SAME_NUMBER(order);
	return NULL;
}

static const char *param_differs(const struct tensor_info *a, const struct tensor_info *b)
{
	SAME_TEXT(name);
	SAME_NUMBER(dtype);
	SAME_NUMBER(dims);
	SAME(memcmp(a->shape, b->shape, a->dims * sizeof(uint64_t)) == 0);
	SAME_NUMBER(bytes);
	return NULL;
}

static const char *piece_differs(const struct piece *a, const struct piece *b)
{
	SAME_NUMBER(tensor);
	SAME_NUMBER(param);
	SAME(box_equal(&a->src, &b->src));
	SAME_NUMBER(offset);
	SAME_NUMBER(bytes);
	SAME(transform_equal(&a->transform, &b->transform));
	SAME_NUMBER(scales);
	return NULL;
}

static const char *fill_differs(const struct fill *a, const struct fill *b)
{
	SAME_NUMBER(param);
	SAME_NUMBER(offset);
	SAME_NUMBER(bytes);
	return NULL;
}

static const char *layout_differs(const struct layout *a, const struct layout *b)
{
	SAME_EACH(tensors, tensor_count, tensor_differs);
	SAME_EACH(params, param_count, param_differs);
	SAME_EACH(pieces, piece_count, piece_differs);
	SAME_EACH(fills, fill_count, fill_differs);
	return NULL;
}

static const char *held_differs(const struct held *a, const struct held *b)
{
	SAME_NUMBER(tensor);
	SAME_NUMBER(local);
	SAME_NUMBER(place.offset);
	SAME(memcmp(a->place.stride, b->place.stride, sizeof(a->place.stride)) == 0);
	SAME(box_equal(&a->box, &b->box));
	return NULL;
}

static const char *holding_differs(const struct holding *a, const struct holding *b)
{
	SAME_EACH(tensors, tensor_count, tensor_differs);
	SAME_EACH(locals, local_count, tensor_differs);
	SAME_EACH(held, held_count, held_differs);
	return NULL;
}

static const char *region_differs(const struct region_record *a, const struct region_record *b)
{
	SAME_NUMBER(region);
	SAME_BYTES(bytes, length);
	return NULL;
}

static const char *place_differs(const struct param_place *a, const struct param_place *b)
{
	SAME_NUMBER(region);
	SAME_NUMBER(offset);
	return NULL;
}

static const char *record_differs(const struct endpoint_record *a, const struct endpoint_record *b)
{
	SAME_MEMBER(peer);
	SAME_BYTES(bytes, length);
	return NULL;
}

static const char *endpoints_differ(const struct message_endpoints *a,
				    const struct message_endpoints *b)
{
	SAME_NUMBER(attempt);
	SAME_EACH(regions, region_count, region_differs);
	SAME_NUMBER(copies);
	SAME_EACH(places, place_count, place_differs);
	SAME_EACH(shared, shared_count, region_differs);
	SAME_EACH(records, record_count, record_differs);
	return NULL;
}

static const char *peer_differs(const struct peer_endpoints *a, const struct peer_endpoints *b)
{
	SAME_MEMBER(member);
	SAME_NUMBER(incarnation);
	SAME_EACH(regions, region_count, region_differs);
	SAME_NUMBER(copies);
	SAME_EACH(places, place_count, place_differs);
	SAME_BYTES(record, record_length);
	return NULL;
}

static const char *plan_peer_differs(const struct plan_peer *a, const struct plan_peer *b)
{
	SAME_MEMBER(member);
	SAME_TEXT(host);
	SAME_NUMBER(bytes);
	SAME_NUMBER(pieces);
	SAME_TEXT(transport);
	SAME_NUMBER(lacks);
	SAME_NUMBER(delta);
	SAME_NUMBER(copy);
	SAME_NUMBER(kept);
	SAME_NUMBER(stand_in);
	return NULL;
}

static const char *row_differs(const struct plan_row *a, const struct plan_row *b)
{
	SAME_NUMBER(peer);
	SAME_NUMBER(ordinal);
	SAME_NUMBER(tensor);
	SAME_NUMBER(param);
	SAME_NUMBER(path);
	SAME(box_equal(&a->src, &b->src));
	SAME_NUMBER(offset);
	SAME_NUMBER(bytes);
	SAME(transform_equal(&a->transform, &b->transform));
	SAME_NUMBER(scales);
	SAME_NUMBER(to);
	return NULL;
}

static const char *away_differs(const struct members *a, const struct members *b)
{
	SAME_NUMBER(first.role);
	SAME_NUMBER(first.rank);
	SAME_NUMBER(count);
	return NULL;
}

static const char *member_differs(const struct member *a, const struct member *b)
{
	SAME_NUMBER(role);
	SAME_NUMBER(rank);
	return NULL;
}

static const char *spare_differs(const struct plan_spare *a, const struct plan_spare *b)
{
	SAME_NUMBER(member.role);
	SAME_NUMBER(member.rank);
	SAME_NUMBER(bytes);
	SAME_NUMBER(pieces);
	return NULL;
}

static const char *run_differs(const struct plan_run *a, const struct plan_run *b)
{
	SAME_NUMBER(fresh);
	SAME_NUMBER(first);
	SAME_NUMBER(count);
	return NULL;
}

static const char *plan_differs(const struct message_plan *a, const struct message_plan *b)
{
	SAME_NUMBER(attempt);
	SAME_DIGEST(digest);
	SAME_NUMBER(follows);
	SAME_TEXT(policy);
	SAME_TEXT(order);
	SAME_NUMBER(checksums);
	SAME_NUMBER(continues);
	SAME_NUMBER(update_timeout_ms);
	SAME_NUMBER(gone);
	SAME_EACH(away, away_count, away_differs);
	SAME_NUMBER(next);
	SAME_NUMBER(copy);
	SAME_NUMBER(repeat);
	SAME_NUMBER(together);
	SAME_NUMBER(shows);
	SAME_NUMBER(alone);
	SAME_NUMBER(decider);
	SAME_NUMBER(rows_of);
	SAME_EACH(dropped, dropped_count, member_differs);
	SAME_EACH(runs, run_count, run_differs);
	SAME_DIGEST(whole);
	SAME_NUMBER(spared);
	SAME_EACH(peers, peer_count, plan_peer_differs);
	SAME_EACH(rows, row_count, row_differs);
	SAME_NUMBER(misses_leave);
	SAME_NUMBER(hedge_ms);
	SAME_NUMBER(stands_for);
	SAME_EACH(spares, spare_count, spare_differs);
	SAME_EACH(spare_rows, spare_row_count, row_differs);
	return NULL;
}

static const char *digests_differ(const struct digest *a, const struct digest *b)
{
	SAME(digest_equal(*a, *b));
	return NULL;
}

static const char *hello_differs(const struct message *a, const struct message *b)
{
	SAME_NUMBER(u.hello.role);
	SAME_NUMBER(u.hello.rank);
	SAME_NUMBER(u.hello.incarnation);
	SAME_TEXT(u.hello.host);
	SAME_TEXT(u.hello.host_id);
	SAME_NUMBER(u.hello.pid);
	SAME_NUMBER(u.hello.attempt);
	SAME_DIGEST(u.hello.plan);
	SAME_NUMBER(u.hello.follows);
	SAME_NUMBER(u.hello.paused);
	SAME_NUMBER(u.hello.unconnected);
	SAME_EACH(u.hello.away, u.hello.away_count, away_differs);
	SAME_EACH(u.hello.lost, u.hello.lost_count, away_differs);
	SAME_EACH(u.hello.done, u.hello.done_count, away_differs);
	return NULL;
}

static const char *nic_differs(const struct nic_report *a, const struct nic_report *b)
{
	SAME_TEXT(name);
	SAME_NUMBER(rail);
	SAME_NUMBER(bytes_per_second);
	SAME_NUMBER(distance);
	return NULL;
}

static const char *offer_differs(const struct transport_offer *a, const struct transport_offer *b)
{
	SAME_TEXT(name);
	SAME_TEXT(reach);
	SAME_NUMBER(mapped);
	SAME_NUMBER(registered);
	SAME_NUMBER(landed);
	return NULL;
}

static const char *declare_differs(const struct message *a, const struct message *b)
{
	SAME_TEXT(u.declare.model);
	SAME_TEXT(u.declare.train);
	SAME_TEXT(u.declare.infer);
	SAME_DIGEST(u.declare.digest);
	SAME_NUMBER(u.declare.mapped);
	SAME_NUMBER(u.declare.device);
	SAME_NUMBER(u.declare.landed);
	SAME_NUMBER(u.declare.registered);
	SAME_NUMBER(u.declare.stands_in);
	SAME_TEXT(u.declare.transport);
	SAME_NUMBER(u.declare.checksums);
	SAME_EACH(u.declare.nics, u.declare.nic_count, nic_differs);
	SAME_EACH(u.declare.offers, u.declare.offer_count, offer_differs);
	return NULL;
}

static const char *small_differs(const struct message *a, const struct message *b)
{
	switch (a->type) {
	case MESSAGE_CONNECTED:
		SAME_NUMBER(u.connected.attempt);
		break;
	case MESSAGE_FAILURE:
		SAME_NUMBER(u.failure.code);
		SAME_TEXT(u.failure.text);
		SAME_NUMBER(u.failure.version);
		break;
	case MESSAGE_LEAVE:
		SAME_NUMBER(u.leave.done);
		break;
	case MESSAGE_DROP:
		SAME_NUMBER(u.drop.attempt);
		SAME_MEMBER(u.drop.member);
		SAME_NUMBER(u.drop.code);
		SAME_TEXT(u.drop.text);
		SAME_NUMBER(u.drop.version);
		break;
	case MESSAGE_GONE:
		SAME_NUMBER(u.gone.number);
		SAME_NUMBER(u.gone.departures);
		SAME_MEMBER(u.gone.first);
		SAME_NUMBER(u.gone.count);
		SAME_NUMBER(u.gone.code);
		SAME_TEXT(u.gone.text);
		break;
	case MESSAGE_PAUSE:
		SAME_NUMBER(u.pause.number);
		SAME_NUMBER(u.pause.gone);
		SAME_NUMBER(u.pause.stop);
		SAME_NUMBER(u.pause.version);
		SAME_NUMBER(u.pause.shows);
		break;
	case MESSAGE_PAUSED:
		SAME_NUMBER(u.paused.number);
		SAME_NUMBER(u.paused.stopped);
		SAME_NUMBER(u.paused.next);
		SAME_NUMBER(u.paused.version);
		SAME_NUMBER(u.paused.repeats);
		SAME_NUMBER(u.paused.between);
		SAME_NUMBER(u.paused.anew);
		SAME_NUMBER(u.paused.promised);
		break;
	case MESSAGE_HEARTBEAT:
		SAME_NUMBER(u.heartbeat.sequence);
		SAME_NUMBER(u.heartbeat.version);
		SAME_NUMBER(u.heartbeat.gone);
		break;
	case MESSAGE_WELCOME:
		SAME_NUMBER(u.welcome.heartbeat_ms);
		SAME_NUMBER(u.welcome.lost_ms);
		SAME_NUMBER(u.welcome.controller);
		SAME_NUMBER(u.welcome.runs);
		break;
	case MESSAGE_REFUSE:
		SAME_NUMBER(u.refuse.code);
		SAME_TEXT(u.refuse.text);
		break;
	case MESSAGE_WANT:
		SAME_EACH(u.want.digests, u.want.digest_count, digests_differ);
		break;
	case MESSAGE_GO:
		SAME_NUMBER(u.go.attempt);
		break;
	case MESSAGE_LOST:
		SAME_NUMBER(u.lost.code);
		SAME_TEXT(u.lost.text);
		SAME_MEMBER(u.lost.member);
		SAME_NUMBER(u.lost.incarnation);
		break;
	default:
		return "a type that nobody compares";
	}
	return NULL;
}

static const char *waits_differ(const struct member *a, const struct member *b)
{
	SAME_NUMBER(role);
	SAME_NUMBER(rank);
	return NULL;
}

static const char *traffic_differs(const struct nic_traffic *a, const struct nic_traffic *b)
{
	SAME_TEXT(name);
	SAME_NUMBER(bytes);
	SAME_NUMBER(busy_ms);
	SAME_NUMBER(waiting_bytes);
	return NULL;
}

static const char *activity_differs(const struct message_activity *a,
				    const struct message_activity *b)
{
	SAME_NUMBER(what);
	SAME_NUMBER(version);
	SAME_NUMBER(since_ms);
	SAME_NUMBER(bytes);
	SAME_NUMBER(busy_ms);
	SAME_EACH(waits, wait_count, waits_differ);
	SAME_NUMBER(waits_more);
	SAME_NUMBER(last.version);
	SAME_NUMBER(last.bytes);
	SAME_NUMBER(last.update_us);
	SAME_NUMBER(last.wait_us);
	SAME_NUMBER(last.write_us);
	SAME_NUMBER(last.verify_us);
	SAME_NUMBER(last.install_us);
	SAME_NUMBER(last.post_load_us);
	SAME_NUMBER(last.pause_us);
	SAME_EACH(nics, nic_count, traffic_differs);
	SAME_TEXT(trouble);
	return NULL;
}

static const char *report_member_differs(const struct report_member *a,
					 const struct report_member *b)
{
	SAME_MEMBER(who);
	SAME_TEXT(host);
	SAME_NUMBER(pid);
	SAME_TEXT(phase);
	SAME_NUMBER(heard_ms);
	SAME_NUMBER(version);
	SAME_NUMBER(version_ms);
	SAME_NUMBER(plan_bytes);
	SAME_NUMBER(known);
	SAME_NUMBER(age_ms);
	SAME_NUMBER(bytes_per_second);
	return activity_differs(&a->activity, &b->activity);
}

static const char *event_differs(const struct report_event *a, const struct report_event *b)
{
	SAME_NUMBER(age_ms);
	SAME_MEMBER(who);
	SAME_NUMBER(code);
	SAME_TEXT(text);
	return NULL;
}

static const char *link_differs(const struct report_link *a, const struct report_link *b)
{
	SAME_NUMBER(trainer);
	SAME_NUMBER(rank);
	SAME_NUMBER(bytes);
	SAME_TEXT(transport);
	return NULL;
}

static const char *report_differs(const struct message_report *a, const struct message_report *b)
{
	SAME_TEXT(state);
	SAME_NUMBER(attempt);
	SAME_NUMBER(plans);
	SAME_NUMBER(up_ms);
	SAME_NUMBER(heartbeat_ms);
	SAME_NUMBER(lost_ms);
	SAME_NUMBER(update_timeout_ms);
	SAME_NUMBER(trainers);
	SAME_NUMBER(engines);
	SAME_NUMBER(engine_ranks);
	SAME_TEXT(policy);
	SAME_TEXT(commit);
	SAME_NUMBER(continues);
	SAME_TEXT(missing);
	SAME_NUMBER(largest_bytes);
	SAME_NUMBER(bound_bytes);
	SAME_NUMBER(predicted_us);
	SAME_NUMBER(bound_us);
	SAME_TEXT(trouble);
	SAME_EACH(members, member_count, report_member_differs);
	SAME_EACH(events, event_count, event_differs);
	SAME_EACH(links, link_count, link_differs);
	SAME_NUMBER(links_left_out);
	return NULL;
}

const char *messages_differ(const struct message *a, const struct message *b)
{
	SAME_NUMBER(type);
	SAME_NUMBER(wire);
	SAME_TEXT(job);
	SAME_NUMBER(epoch);
	SAME_NUMBER(from);
	switch (a->type) {
	case MESSAGE_HELLO:
		return hello_differs(a, b);
	case MESSAGE_DECLARE:
		return declare_differs(a, b);
	case MESSAGE_LAYOUT:
		SAME_DIGEST(u.layout.digest);
		return layout_differs(&a->u.layout.layout, &b->u.layout.layout);
	case MESSAGE_HOLDING:
		SAME_DIGEST(u.holding.digest);
		return holding_differs(&a->u.holding.holding, &b->u.holding.holding);
	case MESSAGE_ENDPOINTS:
		return endpoints_differ(&a->u.endpoints, &b->u.endpoints);
	case MESSAGE_PLAN:
		return plan_differs(&a->u.plan, &b->u.plan);
	case MESSAGE_PEERS:
		SAME_NUMBER(u.peers.attempt);
		SAME_EACH(u.peers.peers, u.peers.peer_count, peer_differs);
		return NULL;
	case MESSAGE_ACTIVITY:
		return activity_differs(&a->u.activity, &b->u.activity);
	case MESSAGE_ASK:
		SAME_NUMBER(u.ask.links);
		return NULL;
	case MESSAGE_REPORT:
		return report_differs(&a->u.report, &b->u.report);
	default:
		return small_differs(a, b);
	}
}
