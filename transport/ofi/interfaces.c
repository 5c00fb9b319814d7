/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/interfaces.h"

#include "base/array.h"
#include "base/file.h"
#include "base/text.h"
#include "transport/ofi/ip.h"
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

static uint32_t prefix_bits(const struct sockaddr *mask)
{
	const struct sockaddr_in *four = (const void *)mask;
	const struct sockaddr_in6 *six = (const void *)mask;
	uint32_t bits = 0;

	if (!mask)
		return 0;
	if (mask->sa_family == AF_INET)
		return (uint32_t)__builtin_popcount(four->sin_addr.s_addr);
	if (mask->sa_family == AF_INET6)
		for (int i = 0; i < 16; i++)
			bits += (uint32_t)__builtin_popcount(six->sin6_addr.s6_addr[i]);
	return bits;
}

/* The name behind the line of /proc/net/route that begins the default route with the least metric. */
static void default_route(char name[IF_NAMESIZE])
{
	char text[16384], *line, *save = NULL;
	unsigned long best = ULONG_MAX;

	name[0] = 0;
	file_read_small("/proc/net/route", text, sizeof(text));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long destination, gateway, flags, references, use, metric, mask;
		char interface[IF_NAMESIZE];

		if (sscanf(line, "%15s %lx %lx %lx %lu %lu %lu %lx", interface, &destination,
			   &gateway, &flags, &references, &use, &metric, &mask) != 8)
			continue;
		if (destination || mask || metric >= best)
			continue;
		best = metric;
		memcpy(name, interface, IF_NAMESIZE);
	}
	if (name[0])
		return;
	/* destination, its bits, source, its bits, next hop, metric, references, use, flags, name */
	file_read_small("/proc/net/ipv6_route", text, sizeof(text));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long bits, metric;
		char destination[33], interface[IF_NAMESIZE];

		if (sscanf(line, "%32s %lx %*s %*s %*s %lx %*s %*s %*s %15s", destination, &bits,
			   &metric, interface) != 4)
			continue;
		if (bits || strspn(destination, "0") != 32 || strcmp(interface, "lo") == 0 ||
		    metric >= best)
			continue;
		best = metric;
		memcpy(name, interface, IF_NAMESIZE);
	}
}

static uint32_t speed_of(const char *name)
{
	char path[64], text[32];
	long value;

	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	file_read_small(path, text, sizeof(text));
	value = strtol(text, NULL, 10);
	return value > 0 && value < INT32_MAX ? (uint32_t)value : 0;
}

/* IPv4 before IPv6, and one of each. */
static void add_address(struct ofi_interface *interface, const struct ofi_address *address)
{
	bool four = address->bytes[0] == 4;

	for (uint32_t i = 0; i < interface->address_count; i++)
		if (interface->addresses[i].bytes[0] == address->bytes[0])
			return;
	if (four && interface->address_count)
		interface->addresses[1] = interface->addresses[0];
	interface->addresses[four ? 0 : interface->address_count] = *address;
	interface->address_count++;
}

static struct ofi_interface *interface_named(struct ofi_interface *all, uint32_t capacity,
					     uint32_t *count, const char *name)
{
	for (uint32_t i = 0; i < *count; i++)
		if (strcmp(all[i].name, name) == 0)
			return &all[i];
	if (*count == capacity || strlen(name) >= sizeof(all->name))
		return NULL;
	all[*count] = (struct ofi_interface){.speed_mbps = speed_of(name)};
	memcpy(all[*count].name, name, strlen(name) + 1);
	return &all[(*count)++];
}

static bool address_of(const struct ifaddrs *at, struct ofi_address *address)
{
	return at->ifa_addr && (at->ifa_flags & IFF_UP) &&
	       ip_from_sockaddr(address, at->ifa_addr, prefix_bits(at->ifa_netmask));
}

int ofi_interfaces_read(struct ofi_interface *out, uint32_t capacity, uint32_t *count,
			struct error *error)
{
	struct ofi_interface *interface;
	struct ofi_address address;
	char route[IF_NAMESIZE];
	struct ifaddrs *list;

	*count = 0;
	if (getifaddrs(&list))
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "this host's network interfaces cannot be listed");
	default_route(route);
	for (struct ifaddrs *at = list; at; at = at->ifa_next) {
		if (!address_of(at, &address) || ip_is_link_local(&address))
			continue;
		interface = interface_named(out, capacity, count, at->ifa_name);
		if (!interface)
			continue;
		interface->loopback = at->ifa_flags & IFF_LOOPBACK;
		interface->has_route = strcmp(route, at->ifa_name) == 0;
		add_address(interface, &address);
	}
	/* last, so that a host's many bridge ports take no place from one that can be used */
	for (struct ifaddrs *at = list; at; at = at->ifa_next) {
		if (!address_of(at, &address) || !ip_is_link_local(&address))
			continue;
		interface = interface_named(out, capacity, count, at->ifa_name);
		if (interface)
			interface->link_local = !interface->address_count;
	}
	freeifaddrs(list);
	return 0;
}

/* ---- which are taken ---- */

static const char *interfaces_text(const struct ofi_interface *all, uint32_t count,
				   struct text *text)
{
	char address[IP_TEXT_BYTES];

	for (uint32_t i = 0; i < count; i++)
		text_format(text, "%s%s%s%s%s%s", i ? ", " : "", all[i].name,
			    all[i].address_count ? " (" : "",
			    all[i].address_count ? ip_text(&all[i].addresses[0], address) : "",
			    all[i].loopback ? ", loopback" : "", all[i].address_count ? ")" : "");
	return count ? text_string(text) : "none";
}

static int none_named(const struct ofi_interface *all, uint32_t count, const char *names,
		      const char *from, const char *why, struct error *error)
{
	struct text known = {0};
	int rc = error_set(error, ERROR_CONFIG, "%s=%.64s: %s; there are: %.512s", from, names, why,
			   interfaces_text(all, count, &known));

	text_fini(&known);
	return rc;
}

static void take(struct ofi_interface *all, uint32_t from, uint32_t to)
{
	struct ofi_interface chosen = all[from];

	memmove(&all[to + 1], &all[to], (from - to) * sizeof(*all));
	all[to] = chosen;
}

static const char only_link_local[] = "has link-local addresses only, which do not count";

/* Why `name` cannot be taken; what has link-local addresses alone lies behind the others, up to total. */
static void say_unknown(const struct ofi_interface *all, uint32_t count, uint32_t total,
			const char *name, char *why, size_t bytes)
{
	for (uint32_t i = count; i < total; i++) {
		if (strcmp(all[i].name, name) == 0) {
			snprintf(why, bytes, "%.32s %s", name, only_link_local);
			return;
		}
	}
	snprintf(why, bytes, "no interface %.32s that is up and has an address", name);
}

static int choose_named(struct ofi_interface *all, uint32_t *count, uint32_t total,
			const char *names, const char *from, uint32_t rank, struct error *error)
{
	char copy[256], why[128], *save = NULL;
	uint32_t taken = 0;

	snprintf(copy, sizeof(copy), "%s", names);
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		char *equals = strchr(name, '=');
		uint32_t i = taken;

		if (equals) {
			uint64_t of;

			*equals = 0;
			if (!parse_u64(name, &of))
				return none_named(all, *count, names, from,
						  "before '=' stands a rank", error);
			if (of != rank)
				continue;
			name = equals + 1;
		}
		while (i < *count && strcmp(all[i].name, name) != 0)
			i++;
		if (i == *count) {
			say_unknown(all, *count, total, name, why, sizeof(why));
			return none_named(all, *count, names, from, why, error);
		}
		take(all, i, taken++);
	}
	if (!taken) {
		snprintf(why, sizeof(why), "names none for rank %u", rank);
		return none_named(all, *count, names, from, why, error);
	}
	*count = taken;
	return 0;
}

/* Loopback is not among those to name: no other host is reached by it. */
static int in_doubt(struct ofi_interface *all, uint32_t count, struct error *error)
{
	struct text known = {0};
	uint32_t far = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		if (!all[i].loopback)
			take(all, i, far++);
	rc = error_set(error, ERROR_CONFIG,
		       "several network interfaces and no default route: name those to use with "
		       "--nic; there are: %.512s",
		       interfaces_text(all, far, &known));
	text_fini(&known);
	return rc;
}

static int choose_one(struct ofi_interface *all, uint32_t *count, uint32_t total,
		      struct error *error)
{
	uint32_t best = 0, far = 0;

	for (uint32_t i = 0; i < *count; i++) {
		if (all[i].has_route) {
			take(all, i, 0);
			*count = 1;
			return 0;
		}
		if (!all[i].loopback) {
			best = i;
			far++;
		}
	}
	if (*count && far <= 1) {
		take(all, best, 0);
		*count = 1;
		return 0;
	}
	if (*count)
		return in_doubt(all, *count, error);
	if (total)
		return error_set(
			error, ERROR_CONFIG,
			"no network interface is up with an address: %s %s; give it another",
			all[0].name, only_link_local);
	return error_set(error, ERROR_CONFIG,
			 "no network interface is up with an address; not even loopback is");
}

/* Those that can be taken, to the front. */
static uint32_t usable(struct ofi_interface *all, uint32_t total)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < total; i++)
		if (!all[i].link_local)
			take(all, i, count++);
	return count;
}

int ofi_interfaces_choose(struct ofi_interface *all, uint32_t *count, const char *names,
			  const char *names_from, uint32_t rank, struct error *error)
{
	uint32_t total = *count;

	*count = usable(all, total);
	return names[0] ? choose_named(all, count, total, names, names_from, rank, error)
			: choose_one(all, count, total, error);
}

int ofi_devices_choose(struct ofi_interface *all, uint32_t *count, uint32_t most, const char *names,
		       const char *names_from, uint32_t rank, struct error *error)
{
	uint32_t first;

	if (names[0])
		return choose_named(all, count, *count, names, names_from, rank, error);
	if (*count <= most)
		return 0;
	first = (uint32_t)((uint64_t)rank * most % *count);
	for (uint32_t i = first; i && i < *count; i++)
		take(all, *count - 1, 0); /* the last to the front, until `first` is there */
	*count = most;
	return 0;
}
