/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file. What is accepted tiles the data exactly, and its header,
 * written again, is read back the same.
 */
#include "model/safetensors.h"

#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void check_same(const struct safetensors *a, const struct safetensors *b)
{
	check(a->count == b->count && a->note_count == b->note_count);
	for (size_t i = 0; i < a->count; i++) {
		check(strcmp(a->entries[i].name, b->entries[i].name) == 0);
		check(a->entries[i].dtype == b->entries[i].dtype);
		check(a->entries[i].dims == b->entries[i].dims);
		check(memcmp(a->entries[i].shape, b->entries[i].shape,
			     sizeof(a->entries[i].shape)) == 0);
		check(a->entries[i].begin == b->entries[i].begin);
		check(a->entries[i].end == b->entries[i].end);
	}
	for (size_t i = 0; i < a->note_count; i++)
		check(strcmp(a->notes[i].value, safetensors_note(b, a->notes[i].key)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct safetensors file, again;
	struct error error = {0};
	struct text text = {0};
	uint64_t at = 0;

	if (safetensors_decode(data, bytes, "input", &file, &error)) {
		check(error.code == ERROR_FILE && error.text[0]);
		return 0;
	}
	for (size_t i = 0; i < file.count; i++) {
		check(file.entries[i].begin == at && file.entries[i].end >= at);
		at = file.entries[i].end;
	}
	check(file.data_offset + at == bytes);
	check(safetensors_encode(file.entries, file.count, file.notes, file.note_count, &text,
				 &error) == 0);
	text_add_bytes(&text, data + file.data_offset, bytes - file.data_offset);
	check(safetensors_decode((const unsigned char *)text.data, text.bytes, "again", &again,
				 &error) == 0);
	check_same(&file, &again);
	safetensors_fini(&again);
	text_fini(&text);
	safetensors_fini(&file);
	return 0;
}
