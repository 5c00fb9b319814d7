/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/abi.h"

#include "worker/api/weft.h"

#include <string.h>

/* Absurd for any version of any of these structs: the caller has not set its size. */
#define SIZE_MOST 4096

#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
#define ROW(id, type, first, known, last) \
	[ABI_##id] = {#type, sizeof(type), END_OF(type, first), END_OF(type, known)},
static const struct row {
	const char *name;
	size_t here, first, known;
} rows[ABI_COUNT] = {ABI_STRUCTS(ROW)};

/* Bytes behind the last field would be set by nobody, and a field that is put there later would be read
 * from an older caller's noise. */
#define NO_TAIL(id, type, first, known, last)                           \
	_Static_assert(sizeof(type) == END_OF(type, last),              \
		       #type " ends in padding: add a reserved field"); \
	_Static_assert(offsetof(type, size) == 0, #type " begins with its size");
ABI_STRUCTS(NO_TAIL)

static size_t size_of(const void *theirs)
{
	size_t size;

	memcpy(&size, theirs, sizeof(size));
	return size;
}

int abi_check_out(enum abi_struct type, const char *call, const void *theirs, struct error *error)
{
	const struct row *row = &rows[type];
	size_t size;

	if (!theirs)
		return error_set(error, ERROR_USAGE, "%s: the %s is NULL", call, row->name);
	size = size_of(theirs);
	if (size >= row->first && size <= SIZE_MOST)
		return 0;
	return error_set(error, ERROR_USAGE,
			 "%s: size of the %s is %zu; set it to sizeof(%s), which is %zu in this "
			 "library (%s) and was never below %zu",
			 call, row->name, size, row->name, row->here, WEFT_VERSION, row->first);
}

/* What this library does not know must not be asked of it. */
static int check_tail(const struct row *row, const char *call, const unsigned char *theirs,
		      struct error *error)
{
	size_t size = size_of(theirs);

	for (size_t at = row->known; at < size; at++)
		if (theirs[at])
			return error_set(
				error, ERROR_USAGE,
				"%s: byte %zu of the %s is 0x%02x, where this library (%s) knows no "
				"field: the caller's struct has %zu bytes, here it has %zu; leave it "
				"0, or use a library as new as the caller's weft.h",
				call, at, row->name, theirs[at], WEFT_VERSION, size, row->here);
	return 0;
}

int abi_take(enum abi_struct type, const char *call, const void *theirs, void *ours,
	     struct error *error)
{
	const struct row *row = &rows[type];
	size_t size = row->here;
	int rc = abi_check_out(type, call, theirs, error);

	if (!rc)
		rc = check_tail(row, call, theirs, error);
	if (rc)
		return rc;
	memset(ours, 0, row->here);
	memcpy(ours, theirs, size_of(theirs) < size ? size_of(theirs) : size);
	memcpy(ours, &size, sizeof(size));
	return 0;
}

int abi_take_at(enum abi_struct type, const char *call, const void *array, size_t stride, size_t at,
		void *ours, struct error *error)
{
	const unsigned char *theirs = array;
	int rc;

	if (!array)
		return error_set(error, ERROR_USAGE, "%s: the array of %s is NULL", call,
				 rows[type].name);
	if (stride < rows[type].first || stride > SIZE_MOST)
		return error_set(error, ERROR_USAGE,
				 "%s: the stride of the array of %s is %zu; pass sizeof(%s), which "
				 "is %zu in this library",
				 call, rows[type].name, stride, rows[type].name, rows[type].here);
	theirs += at * stride;
	if (size_of(theirs) > stride && size_of(theirs) <= SIZE_MOST)
		return error_set(error, ERROR_USAGE,
				 "%s: element %zu of the array of %s has size %zu, more than the "
				 "stride of %zu",
				 call, at, rows[type].name, size_of(theirs), stride);
	rc = abi_take(type, call, theirs, ours, error);
	if (rc)
		error_wrap(error, "element %zu", at);
	return rc;
}

void abi_give(enum abi_struct type, const void *ours, void *theirs)
{
	size_t size = size_of(theirs), here = rows[type].here;

	memcpy((unsigned char *)theirs + sizeof(size), (const unsigned char *)ours + sizeof(size),
	       (size < here ? size : here) - sizeof(size));
	if (size > here)
		memset((unsigned char *)theirs + here, 0, size - here);
}

int abi_check_memory(const char *call, const struct weft_memory *ours, struct error *error)
{
	if (ours->kind == WEFT_MEMORY_CUDA)
		return 0;
	if (ours->kind != WEFT_MEMORY_HOST)
		return error_set(error, ERROR_USAGE,
				 "%s: weft_memory.kind is %u; it is WEFT_MEMORY_HOST (%d), or "
				 "WEFT_MEMORY_CUDA (%d)",
				 call, ours->kind, WEFT_MEMORY_HOST, WEFT_MEMORY_CUDA);
	if (ours->device || ours->stream)
		return error_set(
			error, ERROR_USAGE,
			"%s: host memory at %p has device %d and stream %p; both are 0 for "
			"kind WEFT_MEMORY_HOST",
			call, ours->pointer, (int)ours->device, ours->stream);
	return 0;
}
