/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_made.c -- reads what is made of a piece's box:
 *
 *   {"src":.., "bytes":4096, "make":"requantise 128x128 64x64", "to":"F8_E4M3", "scales":"w_s"}
 *
 * "to" is the parameter's dtype; "scales" the tensor of the source's scales, where it has blocks.
 */
#include "routing/report/dump_value.h"

#include "base/array.h"
#include <string.h>

#define KNOWN_MAX 64 /* a route's pieces are made in few ways, and so are its neighbours' */

int dump_add_made(struct dump *dump, const struct problem_made *made, struct error *error)
{
	struct problem_made *slot = array_push_raw((void **)&dump->made, &dump->made_count,
						   &dump->made_capacity, sizeof(*slot));

	if (!slot)
		return memory_error(error, "reading what is made", sizeof(*slot));
	*slot = *made;
	return 0;
}

static int number(struct dump_reader *r, const struct problem_made *made, uint32_t *out)
{
	static const struct problem_made copy;
	struct dump *dump = r->dump;
	int rc = dump->made_count ? 0 : dump_add_made(dump, &copy, r->error);

	for (size_t i = dump->made_count; !rc && i-- > 1 && i + KNOWN_MAX > dump->made_count;) {
		const struct problem_made *known = &dump->made[i];

		if (make_equal(&known->make, &made->make) && known->scales == made->scales &&
		    known->to == made->to) {
			*out = (uint32_t)i;
			return 0;
		}
	}
	if (!rc)
		rc = dump_add_made(dump, made, r->error);
	*out = (uint32_t)dump->made_count - 1;
	return rc;
}

int dump_take_made(struct dump_reader *r, json_t *piece, uint32_t *out)
{
	struct problem_made made = {0};
	const char *text;
	bool convert;
	int rc;

	*out = 0;
	if (r->failed)
		return r->failed;
	if (!json_object_get(piece, "make")) {
		if (json_object_get(piece, "to") || json_object_get(piece, "scales"))
			return dump_refuse(r, "\"to\" and \"scales\" stand beside a \"make\"");
		return 0;
	}
	rc = dump_string(r, piece, "make", &text);
	if (rc)
		return rc;
	if (!make_parse(text, &made.make, &convert) || (make_plain(&made.make) && !convert))
		return dump_refuse(r,
				   "\"make\" is \"%.64s\"; needed is convert, quantise, scales, "
				   "dequantise, requantise or rescale with its blocks, as "
				   "\"quantise 128x128\"",
				   text);
	rc = dump_string(r, piece, "to", &text);
	if (rc)
		return rc;
	made.to = dtype_from_name(text);
	if (made.to == DTYPE_NONE)
		return dump_refuse(r, "\"to\" is \"%.32s\", which is no dtype", text);
	if (!made.make.from_rows != !json_object_get(piece, "scales"))
		return dump_refuse(r,
				   "\"scales\" is needed where the tensor is in blocks, and only "
				   "there");
	if (made.make.from_rows)
		rc = dump_name(r, piece, "scales", &made.scales);
	return rc ? rc : dump_failed(r, number(r, &made, out));
}
