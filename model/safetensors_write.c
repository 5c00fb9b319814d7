/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include "base/json_write.h"
#include "base/memory.h"
#include <string.h>

static void write_entry(struct json *json, const struct safetensors_entry *entry)
{
	json_put_key_object(json, entry->name);
	json_put_key_string(json, "dtype", dtype_name(entry->dtype));
	json_put_key_array(json, "shape");
	for (uint32_t d = 0; d < entry->dims; d++)
		json_put_u64(json, entry->shape[d]);
	json_put_array_end(json);
	json_put_key_range(json, "data_offsets", entry->begin, entry->end);
	json_put_object_end(json);
}

int safetensors_encode(const struct safetensors_entry *entries, size_t count,
		       const struct safetensors_note *notes, size_t note_count, struct text *out,
		       struct error *error)
{
	size_t start = out->bytes;
	uint64_t length = 0;
	struct json json;

	text_add_bytes(out, &length, sizeof(length));
	json_to_text(&json, out);
	json_put_object(&json);
	if (note_count) {
		json_put_key_object(&json, "__metadata__");
		for (size_t i = 0; i < note_count; i++)
			json_put_key_string(&json, notes[i].key, notes[i].value);
		json_put_object_end(&json);
	}
	for (size_t i = 0; i < count; i++)
		write_entry(&json, &entries[i]);
	json_put_object_end(&json);
	while (text_ok(out) && (out->bytes - start) % SAFETENSORS_ALIGN)
		text_add_bytes(out, " ", 1);
	if (!text_ok(out))
		return memory_error(error, "writing a safetensors header", out->bytes);
	length = out->bytes - start - sizeof(length);
	if (length > SAFETENSORS_HEADER_MAX)
		return error_set(
			error, ERROR_LIMIT,
			"a safetensors header of %llu bytes is larger than %u: use smaller "
			"files",
			(unsigned long long)length, SAFETENSORS_HEADER_MAX);
	memcpy(out->data + start, &length, sizeof(length));
	return 0;
}
