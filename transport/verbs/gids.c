/* SPDX-License-Identifier: Apache-2.0
 *
 * gids.c -- which address of a port to use. Pure: rows in, a choice and a reason a row out.
 *
 *   row ──► empty? v1? interface elsewhere? ──► rejected "because ..."
 *       └─► kind of address ──► rank: IPv4, then IPv6, then the last resorts
 *
 * A last resort (link-local, loopback) is taken only when a port has nothing better; soft-RoCE on
 * lo routes by the loopback address alone. On an InfiniBand port every address is fine and the
 * lowest index is the one everybody uses. An index is never sent to a peer: it moves when an
 * address or a port comes and goes.
 */
#include "transport/verbs/facts.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define IPV4_BITS 96 /* of an IPv4-mapped address, before the IPv4 part */

/* A prefix that the interface confirms is worth less than the kind of address. */
#define RANK_CONFIRMED 1
#define RANK_FORCED    100

static const unsigned char ipv4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* First match decides; the last row matches everything. */
static const struct kind {
	unsigned char bytes[16];
	uint32_t bits;
	int rank;
	const char *last_resort; /* what it is, when it is one */
} kinds[] = {
	{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127}, 104, 12, "loopback"},
	{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, 12, "loopback"},
	{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254}, 112, 10, "link-local"},
	{{0xfe, 0x80}, 10, 10, "link-local"},
	{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 40, NULL},
	{{0}, 0, 30, NULL},
};

static bool same_bits(const unsigned char a[16], const unsigned char b[16], uint32_t bits)
{
	uint32_t whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

static const struct kind *kind_of(const unsigned char raw[16])
{
	const struct kind *kind = kinds;

	while (!same_bits(raw, kind->bytes, kind->bits))
		kind++;
	return kind;
}

bool verbs_gid_is_zero(const unsigned char raw[16])
{
	static const unsigned char zero[16];

	return memcmp(raw, zero, sizeof(zero)) == 0;
}

/* The reset value of a port whose interface has no address: fe80::/64 and nothing behind it. */
static bool is_null(const unsigned char raw[16])
{
	static const unsigned char null[16] = {0xfe, 0x80};

	return verbs_gid_is_zero(raw) || memcmp(raw, null, sizeof(null)) == 0;
}

static const char *const type_names[] = {"IB", "RoCE v1", "RoCE v2"};

const char *verbs_gid_text(const unsigned char raw[16], char text[VERBS_GID_TEXT_BYTES])
{
	if (!inet_ntop(AF_INET6, raw, text, VERBS_GID_TEXT_BYTES))
		text[0] = '\0';
	return text;
}

bool verbs_gid_is_ipv4(const unsigned char raw[16])
{
	return memcmp(raw, ipv4_mapped, sizeof(ipv4_mapped)) == 0;
}

bool verbs_gid_same_subnet(const unsigned char a[16], uint32_t a_bits, const unsigned char b[16],
			   uint32_t b_bits)
{
	uint32_t bits = a_bits;

	if (verbs_gid_is_ipv4(a) != verbs_gid_is_ipv4(b))
		return false;
	if (bits == 0 || (b_bits != 0 && b_bits < bits))
		bits = b_bits;
	if (bits == 0)
		return false;
	if (verbs_gid_is_ipv4(a))
		bits += IPV4_BITS;
	return bits <= 128 && same_bits(a, b, bits);
}

static void reject(struct verbs_gid *gid, const char *why)
{
	gid->rank = -1;
	snprintf(gid->rejected, sizeof(gid->rejected), "%s", why);
}

static void judge_ib(struct verbs_gid *gid)
{
	if (verbs_gid_is_zero(gid->raw))
		reject(gid, "empty row");
	else
		gid->rank = gid->index == 0 ? 20 : 10;
}

static void judge_ethernet(struct verbs_gid *gid)
{
	if (is_null(gid->raw))
		reject(gid, "empty row");
	else if (gid->type != VERBS_GID_ROCE_V2)
		reject(gid, gid->type == VERBS_GID_IB
				    ? "type IB on an Ethernet port: only RoCE v2 passes routers"
				    : "RoCE v1: only RoCE v2 passes routers");
	else if (gid->netdev[0] == '\0')
		reject(gid, "belongs to a network interface that is not in this network "
			    "namespace");
	else
		gid->rank = kind_of(gid->raw)->rank + (gid->prefix_bits ? RANK_CONFIRMED : 0);
}

static const struct verbs_gid *best_of(const struct verbs_port *port)
{
	const struct verbs_gid *best = NULL;

	array_each(gid, &port->gids) {
		if (gid->rank < 0)
			continue;
		if (!best || gid->rank > best->rank ||
		    (gid->rank == best->rank && gid->index < best->index))
			best = gid;
	}
	return best;
}

/* Last resorts lose their row's rank once there is something better; IB knows none. */
static void reject_last_resorts(struct verbs_port *port, const struct verbs_gid *best)
{
	array_each(gid, &port->gids) {
		const char *what = kind_of(gid->raw)->last_resort;
		char why[VERBS_WHY_BYTES];

		if (gid->rank < 0 || !what || gid == best ||
		    kind_of(gid->raw)->rank >= kind_of(best->raw)->rank)
			continue;
		snprintf(why, sizeof(why),
			 "%s: taken only when there is nothing else, and there "
			 "is GID %u",
			 what, best->index);
		reject(gid, why);
	}
}

static int forced_error(struct error *error, const struct verbs_device *device,
			const struct verbs_port *port, int32_t forced, const char *forced_from,
			const char *trouble)
{
	struct text rows = {0};
	char text[VERBS_GID_TEXT_BYTES];

	array_each(gid, &port->gids) {
		if (!verbs_gid_is_zero(gid->raw))
			text_format(&rows, "%s%u (%s, %s)", rows.bytes ? ", " : "", gid->index,
				    verbs_gid_text(gid->raw, text), type_names[gid->type]);
	}
	int rc = error_set(error, ERROR_CONFIG, "%s=%d: %s:%u has %s GID %d; it has %s",
			   forced_from, forced, device->name, port->number, trouble, forced,
			   rows.bytes ? text_string(&rows) : "no GIDs at all");

	text_fini(&rows);
	return rc;
}

static int take_forced(const struct verbs_device *device, struct verbs_port *port, int32_t forced,
		       const char *forced_from, struct error *error)
{
	const char *from = forced_from && *forced_from ? forced_from : "the GID index";
	char why[VERBS_WHY_BYTES];

	for (size_t i = 0; i < port->gids.count; i++)
		if (port->gids.items[i].index == (uint32_t)forced)
			port->gid = (int32_t)i;
	if (port->gid < 0)
		return forced_error(error, device, port, forced, from, "no");
	struct verbs_gid *chosen = &port->gids.items[port->gid];

	if (verbs_gid_is_zero(chosen->raw)) {
		port->gid = -1;
		return forced_error(error, device, port, forced, from, "an empty");
	}
	snprintf(why, sizeof(why), "%s=%d takes another row", from, forced);
	for (size_t i = 0; i < port->gids.count; i++)
		if (port->gids.items[i].rank >= 0)
			reject(&port->gids.items[i], why);
	chosen->rank = RANK_FORCED;
	chosen->rejected[0] = '\0';
	return 0;
}

int verbs_gids_judge(const struct verbs_device *device, struct verbs_port *port, int32_t forced,
		     const char *forced_from, struct error *error)
{
	port->gid = -1;
	array_each(gid, &port->gids) {
		gid->rank = 0;
		gid->rejected[0] = '\0';
		if (port->link == VERBS_LINK_INFINIBAND)
			judge_ib(gid);
		else
			judge_ethernet(gid);
	}
	if (forced >= 0)
		return take_forced(device, port, forced, forced_from, error);
	const struct verbs_gid *best = best_of(port);

	if (!best)
		return 0;
	port->gid = (int32_t)(best - port->gids.items);
	if (port->link != VERBS_LINK_INFINIBAND)
		reject_last_resorts(port, best);
	return 0;
}
