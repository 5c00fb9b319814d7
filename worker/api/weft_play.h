/* SPDX-License-Identifier: Apache-2.0
 *
 * weft_play.h -- what tests and programs that play trainer need beside weft.h, from the same library:
 * checkpoints as a source of tensors, contents that change with the version in a known way, and the
 * comparison of a rank's memory with them. An engine or a training framework needs none of it.
 */
#ifndef WEFT_PLAY_H
#define WEFT_PLAY_H

#include "weft.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For programs, which own their signals: reading a mapped file that was truncated meanwhile ends the process
 * with one message that names the file and exit code 1, and not by SIGBUS without a word. */
WEFT_API void weft_catch_truncated_files(const char *program);

/* [any thread] A program's own line on standard error: in the log's format (weft_set_log_format), behind the lines that were logged
 * before, and without waiting for who reads. The line break is added. */
WEFT_API void weft_say(const char *line);

typedef struct weft_checkpoint weft_checkpoint;
WEFT_API int weft_checkpoint_open(weft_checkpoint **checkpoint, const char *path,
				  weft_error *error);
WEFT_API void weft_checkpoint_close(weft_checkpoint **checkpoint);
/* [any thread] NULL when there is no such tensor. Mapped, read-only, until close. */
WEFT_API const void *weft_checkpoint_tensor(const weft_checkpoint *checkpoint, const char *name,
					    uint64_t *bytes);
/* After the declarations: each tensor that this worker declared or needs is in the checkpoint with the
 * same dtype and shape. WEFT_E_FILE names the first that is not, and both. */
WEFT_API int weft_checkpoint_fits(const weft_checkpoint *checkpoint, const weft_worker *worker,
				  weft_error *error);
/* What the checkpoint has beside the model's own tensors and nobody sends, as text of one line: the vision
 * tower of a multimodal model, an adapter. "" when all is the model's. `as` as weft_declare_model_as takes
 * it. Its length, also where that is `size` or more and the text is cut; or a negative error. */
WEFT_API int weft_checkpoint_left_alone(const weft_checkpoint *checkpoint, const char *model,
					const char *as, char *text, size_t size,
					weft_error *error);
/* [any thread] Bytes [offset, offset + bytes) of version `version` of a tensor: a function of
 * its checkpoint bytes and the version, so anyone can recompute them: with w_i the tensor's little-endian
 * words of 64 bits, the last one padded with zero bytes, and key a hash of name and version,
 *
 *     word i = w_i + key * (2 i + 1)                                             modulo 2^64
 *
 * The bytes go to host memory. */
WEFT_API void weft_content_version(const char *name, const void *tensor, uint64_t tensor_bytes,
				   uint64_t version, uint64_t offset, uint64_t bytes, void *out);
/* Before any: from now on, in this process, one of so many of the 16-bit values of a version differs from the version before, and the
 * others do not; 1, the default: all words do. */
WEFT_API void weft_content_change_one_in(uint32_t values);
/* [any thread] The same of a box that is held, as weft_holding_at has filled it, to where it is in the local parameter, whose first byte `local` is
 * in host memory. */
WEFT_API void weft_content_holding(const weft_holding_view *view, const void *tensor, uint64_t tensor_bytes,
				   uint64_t version, void *local);
/* Inference: recomputes every byte of this rank's parameters for `version` from the checkpoint
 * and compares with its memory. 0: equal; WEFT_E_CHECKSUM names parameter, offset, both bytes.
 * *bytes_compared may be NULL. */
WEFT_API int weft_verify(const weft_worker *worker, const weft_checkpoint *checkpoint,
			 uint64_t version, uint64_t *bytes_compared, weft_error *error);

/* Memory of device `device` (weft_device), zeroed; -1: of the host. [any thread] */
WEFT_API int weft_play_allocate(int32_t device, uint64_t bytes, weft_memory *memory, weft_error *error);
/* Waits for what the device still does with it. Of a pointer that is NULL: nothing. [any thread] */
WEFT_API void weft_play_free(weft_memory *memory);
/* Between any two of host memory and memory of that device; done when it returns. [any thread] */
WEFT_API int weft_play_copy(int32_t device, void *to, const void *from, uint64_t bytes, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
