/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.h -- the file format, as bytes.
 *
 *   0          8                       8 + n                                        end
 *   ┌──────────┬───────────────────────┬──────────────────────────────────────────────┐
 *   │ n, u64le │ JSON header, n bytes  │ data: the tensors, back to back, no holes    │
 *   └──────────┴───────────────────────┴──────────────────────────────────────────────┘
 *   {"__metadata__": {"k": "v"}, "name": {"dtype": "BF16", "shape": [2, 3],
 *                                         "data_offsets": [0, 12]}, ...}
 *
 * data_offsets count from the data's first byte. A file is accepted only if its tensors tile
 * the data exactly. Two things that the format allows are kept, with a meaning here: a scalar
 * (shape []) has one dimension of size 1, and an empty tensor (a dimension of size 0) has no
 * bytes. Source: the safetensors format description (its Rust reference implementation).
 */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include "job/box.h"
#include "job/dtype.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/text.h"
#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000u
#define SAFETENSORS_NAME_MAX   1024u
#define SAFETENSORS_DIMS_MAX   8u /* more than a routed tensor may have: others lie beside them */
#define SAFETENSORS_ALIGN      64u /* what we write: the data's first byte on a cache line */

struct safetensors_entry {
	char *name;
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[SAFETENSORS_DIMS_MAX];
	uint64_t begin, end;   /* bytes from the data's first */
};

struct safetensors_note {
	char *key, *value;     /* of __metadata__ */
};

struct safetensors {
	struct pool pool;      /* owns all of it */
	struct safetensors_entry *entries; /* by place in the file */
	size_t count;
	struct safetensors_note *notes;
	size_t note_count;
	uint64_t data_offset;  /* of the data's first byte in the file */
};

/* Pure: `data` is the whole file (only its header is read), `where` its name for the
 * messages. ERROR_FILE names the byte or the tensor. After a failure *out is empty. */
int safetensors_decode(const unsigned char *data, uint64_t bytes, const char *where,
		       struct safetensors *out, struct error *error);
void safetensors_fini(struct safetensors *file); /* any state; leaves it empty */
/* NULL when there is none. */
const char *safetensors_note(const struct safetensors *file, const char *key);

/* Appends the length word and the JSON header of `count` entries to `out` (begin and end as
 * they are), padded with spaces to SAFETENSORS_ALIGN. The data follows it. */
int safetensors_encode(const struct safetensors_entry *entries, size_t count,
		       const struct safetensors_note *notes, size_t note_count,
		       struct text *out, struct error *error);

/* model.safetensors.index.json: which file holds which tensor. */
struct safetensors_index {
	struct pool pool;      /* owns all of it */
	char **files;          /* ascending; plain names, without a folder */
	size_t file_count;
	struct safetensors_index_entry {
		char *name;
		uint32_t file;
	} *entries;            /* in the index's order */
	size_t count;
};

/* Pure. File names with a folder, "..", or another ending than .safetensors are refused: an
 * index may only name its neighbours. metadata.total_size is not trusted and not read. */
int safetensors_index_decode(const char *text, size_t bytes, const char *where,
			     struct safetensors_index *out, struct error *error);
void safetensors_index_fini(struct safetensors_index *index);

#endif
