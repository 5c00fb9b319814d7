/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_transformed.c -- reads how a piece's box is transformed:
 *
 *   {"src":.., "bytes":4096, "make":"requantise 128x128 64x64", "to":"F8_E4M3", "scales":"w_s"}
 *
 * "to" is the parameter's dtype; "scales" the tensor of the source's scales, where it has blocks.
 */
#include "routing/report/dump_value.h"

#include "base/array.h"

#define KNOWN_MAX 64 /* a route's pieces are made in few ways, and so are its neighbours' */

int dump_add_transformed(struct dump *dump, const struct problem_transformed *transformed,
			 struct error *error)
{
	struct problem_transformed *slot =
		array_push_raw((void **)&dump->transformed, &dump->transformed_count,
			       &dump->transformed_capacity, sizeof(*slot));

	if (!slot)
		return memory_error(error, "reading what is made", sizeof(*slot));
	*slot = *transformed;
	return 0;
}

static int number(struct dump *dump, const struct problem_transformed *transformed, uint32_t *out,
		  struct error *error)
{
	static const struct problem_transformed copy;
	int rc = dump->transformed_count ? 0 : dump_add_transformed(dump, &copy, error);

	for (size_t i = dump->transformed_count;
	     !rc && i-- > 1 && i + KNOWN_MAX > dump->transformed_count;) {
		const struct problem_transformed *known = &dump->transformed[i];

		if (transform_equal(&known->transform, &transformed->transform) &&
		    known->scales == transformed->scales && known->to == transformed->to) {
			*out = (uint32_t)i;
			return 0;
		}
	}
	if (!rc)
		rc = dump_add_transformed(dump, transformed, error);
	*out = (uint32_t)dump->transformed_count - 1;
	return rc;
}

int dump_take_transformed(struct json_reader *r, struct dump *dump, json_t *piece, uint32_t *out)
{
	struct problem_transformed transformed = {0};
	const char *text;
	bool convert;

	*out = 0;
	if (r->failed)
		return r->failed;
	if (!json_object_get(piece, "make")) {
		if (json_object_get(piece, "to") || json_object_get(piece, "scales"))
			return json_refuse(r, "\"to\" and \"scales\" stand beside a \"make\"");
		return 0;
	}
	if (json_take_string(r, piece, "make", &text))
		return r->failed;
	if (!transform_parse(text, &transformed.transform, &convert) ||
	    (transform_plain(&transformed.transform) && !convert))
		return json_refuse(r,
				   "\"make\" is \"%.64s\"; needed is convert, quantise, scales, "
				   "dequantise, requantise or rescale with its blocks, as "
				   "\"quantise 128x128\", or transpose, or pad with the elements "
				   "of a row, as \"pad 736\"",
				   text);
	if (json_take_string(r, piece, "to", &text))
		return r->failed;
	transformed.to = dtype_from_name(text);
	if (transformed.to == DTYPE_NONE)
		return json_refuse(r, "\"to\" is \"%.32s\", which is no dtype", text);
	if (!transformed.transform.from_rows != !json_object_get(piece, "scales"))
		return json_refuse(r,
				   "\"scales\" is needed where the tensor is in blocks, and only "
				   "there");
	if (transformed.transform.from_rows &&
	    dump_name(r, dump, piece, "scales", &transformed.scales))
		return r->failed;
	return json_failed(r, number(dump, &transformed, out, r->error));
}
