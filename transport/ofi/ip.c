/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/ip.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { AT_FAMILY = 0, AT_PREFIX = 1, AT_PORT = 2, AT_ADDRESS = 4 };

static bool is_four(const struct ofi_address *address)
{
	return address->length == IP_BYTES && address->bytes[AT_FAMILY] == 4;
}

static bool is_six(const struct ofi_address *address)
{
	return address->length == IP_BYTES && address->bytes[AT_FAMILY] == 6;
}

bool ip_from_sockaddr(struct ofi_address *address, const struct sockaddr *from,
		      uint32_t prefix_bits)
{
	const struct sockaddr_in *four = (const void *)from;
	const struct sockaddr_in6 *six = (const void *)from;

	*address = (struct ofi_address){.length = IP_BYTES};
	address->bytes[AT_PREFIX] = (unsigned char)prefix_bits;
	if (from->sa_family == AF_INET) {
		address->bytes[AT_FAMILY] = 4;
		memcpy(address->bytes + AT_PORT, &four->sin_port, 2);
		memcpy(address->bytes + AT_ADDRESS, &four->sin_addr, 4);
		return true;
	}
	if (from->sa_family == AF_INET6) {
		address->bytes[AT_FAMILY] = 6;
		memcpy(address->bytes + AT_PORT, &six->sin6_port, 2);
		memcpy(address->bytes + AT_ADDRESS, &six->sin6_addr, 16);
		return true;
	}
	return false;
}

socklen_t ip_to_sockaddr(const struct ofi_address *address, struct sockaddr_storage *to)
{
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};

	memset(to, 0, sizeof(*to));
	if (is_four(address)) {
		memcpy(&four.sin_port, address->bytes + AT_PORT, 2);
		memcpy(&four.sin_addr, address->bytes + AT_ADDRESS, 4);
		memcpy(to, &four, sizeof(four));
		return sizeof(four);
	}
	if (is_six(address)) {
		memcpy(&six.sin6_port, address->bytes + AT_PORT, 2);
		memcpy(&six.sin6_addr, address->bytes + AT_ADDRESS, 16);
		memcpy(to, &six, sizeof(six));
		return sizeof(six);
	}
	return 0;
}

const char *ip_text(const struct ofi_address *address, char text[IP_TEXT_BYTES])
{
	char digits[INET6_ADDRSTRLEN];
	uint16_t port;

	if (!is_four(address) && !is_six(address)) {
		snprintf(text, IP_TEXT_BYTES, "an address of %u bytes", address->length);
		return text;
	}
	memcpy(&port, address->bytes + AT_PORT, 2);
	port = ntohs(port);
	inet_ntop(is_four(address) ? AF_INET : AF_INET6, address->bytes + AT_ADDRESS, digits,
		  sizeof(digits));
	if (!port)
		snprintf(text, IP_TEXT_BYTES, "%s", digits);
	else
		snprintf(text, IP_TEXT_BYTES, is_four(address) ? "%s:%u" : "[%s]:%u", digits, port);
	return text;
}

static bool same_bits(const unsigned char *a, const unsigned char *b, uint32_t bits)
{
	unsigned char mask = (unsigned char)(0xff00 >> bits % 8);

	return memcmp(a, b, bits / 8) == 0 &&
	       (bits % 8 == 0 || (a[bits / 8] & mask) == (b[bits / 8] & mask));
}

int ip_reaches(const struct ofi_address *from, const struct ofi_address *to)
{
	uint32_t bits = from->bytes[AT_PREFIX], most = is_four(from) ? 32 : 128;

	if (from->length != IP_BYTES || to->length != IP_BYTES ||
	    from->bytes[AT_FAMILY] != to->bytes[AT_FAMILY])
		return 0;
	if (bits && bits <= most &&
	    same_bits(from->bytes + AT_ADDRESS, to->bytes + AT_ADDRESS, bits))
		return 2;
	return 1;
}

bool ip_is_loopback(const struct ofi_address *address)
{
	if (is_four(address))
		return address->bytes[AT_ADDRESS] == 127;
	return is_six(address) &&
	       IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)(address->bytes + AT_ADDRESS));
}

bool ip_is_link_local(const struct ofi_address *address)
{
	const unsigned char *at = address->bytes + AT_ADDRESS;

	if (is_four(address))
		return at[0] == 169 && at[1] == 254;
	return is_six(address) && at[0] == 0xfe && (at[1] & 0xc0) == 0x80;
}
