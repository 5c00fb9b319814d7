/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layout_file_params.h"

#include "base/compare.h"
#include "base/memory.h"
#include "model/layout_file.h"
#include <inttypes.h>
#include <string.h>

static int no_memory(struct json_reader *r, size_t bytes)
{
	return json_failed(r, memory_error(r->error, "reading a layout file", bytes));
}

int layout_file_name(struct json_reader *r, json_t *object, const char *key, const char **out)
{
	if (json_take_string(r, object, key, out))
		return r->failed;
	if (!**out || strlen(*out) >= LAYOUT_FILE_NAME_BYTES)
		return json_refuse(r, "\"%s\" has %zu bytes; 1 to %d are possible", key,
				   strlen(*out), LAYOUT_FILE_NAME_BYTES - 1);
	return 0;
}

/* A whole number of a list. */
static bool number_of(const json_t *value, uint64_t *out)
{
	*out = (uint64_t)json_integer_value(value);
	return json_is_integer(value) && json_integer_value(value) >= 0 &&
	       *out <= LAYOUT_FILE_VALUE_MAX;
}

int layout_file_shape(struct json_reader *r, json_t *object, const char *name, enum dtype *dtype,
		      uint32_t *dims, uint64_t *shape, uint64_t *bytes)
{
	const char *dtype_text;
	json_t *sizes;

	if (json_take_string(r, object, "dtype", &dtype_text) ||
	    json_take_list(r, object, "shape", &sizes))
		return r->failed;
	*dtype = dtype_from_name(dtype_text);
	if (*dtype == DTYPE_NONE)
		return json_refuse(r,
				   "%s: \"dtype\" is \"%.40s\"; the names are those of "
				   "safetensors: BF16, F16, F32, F8_E4M3, ...",
				   name, dtype_text);
	if (json_array_size(sizes) < 1 || json_array_size(sizes) > BOX_DIMS_MAX)
		return json_refuse(r, "%s: \"shape\" has %zu sizes; 1 to %d are possible", name,
				   json_array_size(sizes), BOX_DIMS_MAX);
	*dims = (uint32_t)json_array_size(sizes);
	for (uint32_t d = 0; d < *dims; d++)
		if (!number_of(json_array_get(sizes, d), &shape[d]) || shape[d] == 0)
			return json_refuse(r, "%s: \"shape\"[%u] is not a whole number above 0",
					   name, d);
	if (!shape_bytes(*dims, shape, dtype_bytes(*dtype), bytes))
		return json_refuse(r, "%s has more than 2^62 bytes", name);
	return 0;
}

/* ---- pieces ---- */

static int find_tensor(struct json_reader *r, const struct model *model, json_t *piece,
		       const char *key, uint32_t *out)
{
	const char *name;
	int64_t at;

	if (layout_file_name(r, piece, key, &name))
		return r->failed;
	at = model_find(model, name);
	if (at < 0)
		return json_refuse(r, "\"%s\" is \"%.200s\", which \"tensors\" does not list", key,
				   name);
	if ((size_t)at >= model->tensor_count)
		return json_refuse(r,
				   "\"%s\" is \"%.200s\", which is \"left_alone\": move it to "
				   "\"tensors\"",
				   key, name);
	*out = (uint32_t)at;
	return 0;
}

/* [low, high], or [low, high, step]: k times the step further at place k. */
static int read_range(struct json_reader *r, const json_t *range, uint32_t d,
		      struct layout_item *item)
{
	size_t count = json_array_size(range);

	item->step[d] = 0;
	if ((count != 2 && count != 3) || !number_of(json_array_get(range, 0), &item->src.lo[d]) ||
	    !number_of(json_array_get(range, 1), &item->src.hi[d]) ||
	    item->src.lo[d] >= item->src.hi[d] ||
	    (count == 3 && !number_of(json_array_get(range, 2), &item->step[d])))
		return json_refuse(r,
				   "\"src\"[%u] is not [low, high] or [low, high, step] with 0 <= "
				   "low < high and 0 <= step",
				   d);
	return 0;
}

/* Without one: the whole tensor. */
static int read_src(struct json_reader *r, const struct model *model, json_t *piece,
		    struct layout_item *item)
{
	const struct model_tensor *tensor = &model->tensors[item->tensor];
	json_t *src;

	item->src = box_whole(tensor->dims, tensor->shape);
	if (!json_object_get(piece, "src"))
		return 0;
	if (json_take_list(r, piece, "src", &src))
		return r->failed;
	if (json_array_size(src) != tensor->dims)
		return json_refuse(r, "\"src\" has %zu dimensions; tensor %s has %u",
				   json_array_size(src), tensor->name, tensor->dims);
	for (uint32_t d = 0; d < tensor->dims; d++)
		if (read_range(r, json_array_get(src, d), d, item))
			return r->failed;
	return 0;
}

/* How it is made: "make" in the words of `weft model layout`; without it copied, or converted. */
static int read_make(struct json_reader *r, const struct model *model, json_t *piece, enum dtype to,
		     struct layout_item *item)
{
	const struct model_tensor *tensor = &model->tensors[item->tensor];
	const char *text;
	bool convert;

	if (json_object_get(piece, "make")) {
		if (json_take_string(r, piece, "make", &text))
			return r->failed;
		if (!transform_parse(text, &item->transform, &convert))
			return json_refuse(
				r,
				"\"make\" is \"%.64s\"; it is copy, convert, transpose, or "
				"quantise, scales, dequantise, requantise or rescale "
				"with the blocks, as \"quantise 128x128\", or pad with the "
				"elements of a row, as \"pad 736\"",
				text);
		if (transform_plain(&item->transform) && convert != (tensor->dtype != to))
			return json_refuse(r, "\"make\" is \"%s\", of tensor %s, %s, for %s", text,
					   tensor->name, dtype_name(tensor->dtype), dtype_name(to));
	}
	if (item->transform.from_rows && !json_object_get(piece, "scales"))
		return json_refuse(r,
				   "key \"scales\" is missing: the tensor of the blocks' scales");
	if (!item->transform.from_rows && json_object_get(piece, "scales"))
		return json_refuse(r, "\"scales\" without a \"make\" from blocks");
	return item->transform.from_rows ? find_tensor(r, model, piece, "scales", &item->scales)
					 : 0;
}

static int read_piece(struct json_reader *r, const struct model *model, json_t *piece,
		      enum dtype to, struct layout_item *item)
{
	static const char *const keys[] = {"tensor|fill", "src|", "make|", "scales|", NULL};
	static const char *const fill_keys[] = {"fill", NULL};

	if (json_is_object(piece) && json_object_get(piece, "fill")) {
		item->tensor = LAYOUT_FILL;
		if (json_known_keys(r, piece, fill_keys))
			return r->failed;
		return json_take_number(r, piece, "fill", 1, LAYOUT_FILE_VALUE_MAX, &item->bytes);
	}
	if (json_known_keys(r, piece, keys) || json_needed_keys(r, piece, keys) ||
	    find_tensor(r, model, piece, "tensor", &item->tensor) ||
	    read_src(r, model, piece, item))
		return r->failed;
	return read_make(r, model, piece, to, item);
}

static int read_pieces(struct json_reader *r, struct model *model, json_t *object,
		       struct layout_entry *entry)
{
	struct layout_file *file = model->file;
	json_t *pieces;

	if (json_take_list(r, object, "pieces", &pieces))
		return r->failed;
	entry->item_first = file->items.count;
	entry->item_count = json_array_size(pieces);
	if (entry->item_count == 0)
		return json_refuse(r, "\"pieces\" is empty");
	if (entry->item_count > LAYOUT_FILE_PIECES_MAX - entry->item_first)
		return json_refuse(r, "more than %u pieces up to here", LAYOUT_FILE_PIECES_MAX);
	for (size_t i = 0; i < entry->item_count; i++) {
		struct layout_item item = {0};

		r->at.inner = "pieces";
		r->at.inner_index = i;
		if (read_piece(r, model, json_array_get(pieces, i), entry->dtype, &item))
			return r->failed;
		if (!array_add(&file->items, item))
			return no_memory(r, sizeof(item));
	}
	r->at.inner = NULL;
	return 0;
}

/* ---- ranks ---- */

static int add_rank(struct json_reader *r, struct layout_file *file, const json_t *value,
		    size_t place)
{
	uint64_t rank;

	if (!number_of(value, &rank) || rank >= file->infer.tp)
		return json_refuse(r,
				   "\"ranks\"[%zu] is not an engine rank, which are 0 to %u with "
				   "tp=%u, or a list of them",
				   place, file->infer.tp - 1, file->infer.tp);
	if (file->ranks.count >= LAYOUT_FILE_RANKS_MAX)
		return json_refuse(r, "more than %u ranks in all lists", LAYOUT_FILE_RANKS_MAX);
	if (!array_add(&file->ranks, {(uint32_t)rank, (uint32_t)place}))
		return no_memory(r, sizeof(struct layout_place));
	return 0;
}

static int by_rank(const void *left, const void *right)
{
	const struct layout_place *a = left, *b = right;

	return compare_u64(a->rank, b->rank) ?: compare_u64(a->place, b->place);
}

/* Of an entry: [0, 1, 2], a place each, or [[0, 2], [1, 3]], where neighbours in a list share one. */
static int read_ranks(struct json_reader *r, struct layout_file *file, json_t *object,
		      struct layout_entry *entry)
{
	struct layout_place *first;
	json_t *ranks;

	entry->rank_first = file->ranks.count;
	entry->places = file->infer.tp;
	if (!json_object_get(object, "ranks"))
		return 0;
	if (json_take_list(r, object, "ranks", &ranks))
		return r->failed;
	entry->places = (uint32_t)json_array_size(ranks);
	if (json_array_size(ranks) == 0 || json_array_size(ranks) > file->infer.tp)
		return json_refuse(r, "\"ranks\" has %zu items; 1 to %u are possible with tp=%u",
				   json_array_size(ranks), file->infer.tp, file->infer.tp);
	for (size_t place = 0; place < entry->places; place++) {
		const json_t *item = json_array_get(ranks, place);
		size_t count = json_is_array(item) ? json_array_size(item) : 1;

		if (count == 0)
			return json_refuse(r, "\"ranks\"[%zu] is empty", place);
		for (size_t i = 0; i < count; i++)
			if (add_rank(r, file, json_is_array(item) ? json_array_get(item, i) : item,
				     place))
				return r->failed;
	}
	entry->rank_count = file->ranks.count - entry->rank_first;
	first = file->ranks.items + entry->rank_first;
	sort_items(first, entry->rank_count, by_rank);
	for (size_t i = 1; i < entry->rank_count; i++)
		if (first[i].rank == first[i - 1].rank)
			return json_refuse(r, "\"ranks\" has rank %u twice", first[i].rank);
	return 0;
}

/* ---- an entry ---- */

/* As it will be laid out at its first and its last place; between them it differs by steps. */
static int check_entry(struct json_reader *r, const struct model *model,
		       const struct layout_entry *entry)
{
	for (uint32_t i = 0; i < 2 && !r->failed; i++) {
		uint32_t place = i ? entry->places - 1 : 0;
		struct layout layout;
		struct error why = {0};
		int rc;

		if (i && place == 0)
			break;
		layout_init(&layout);
		rc = layout_file_add(model, entry, place, &layout, &why);
		if (!rc)
			rc = layout_finish(&layout, &why);
		layout_fini(&layout);
		if (rc == -ERROR_MEMORY)
			json_failed(r, error_copy(r->error, &why));
		else if (rc)
			json_refuse(r, "%s, at place %u of %u: %s", entry->name, place,
				    entry->places, why.text);
	}
	return r->failed;
}

int layout_file_param(struct json_reader *r, struct model *model, json_t *object)
{
	static const char *const keys[] = {"name", "dtype", "shape", "ranks|", "pieces", NULL};
	struct layout_file *file = model->file;
	struct layout_entry entry = {0};
	const char *name;
	uint64_t bytes;

	json_known_keys(r, object, keys);
	json_needed_keys(r, object, keys);
	if (file->entries.count >= LAYOUT_FILE_PARAMS_MAX)
		return json_refuse(r, "more than %u parameters", LAYOUT_FILE_PARAMS_MAX);
	if (layout_file_name(r, object, "name", &name) ||
	    layout_file_shape(r, object, name, &entry.dtype, &entry.dims, entry.shape, &bytes) ||
	    read_ranks(r, file, object, &entry) || read_pieces(r, model, object, &entry))
		return r->failed;
	entry.name = pool_string(&file->names, name);
	if (!entry.name || !array_add(&file->entries, entry))
		return no_memory(r, sizeof(entry));
	return check_entry(r, model, &entry);
}
