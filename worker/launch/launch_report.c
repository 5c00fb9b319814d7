/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_report.c -- the error where torchrun shows it: its failure table prints the message of
 * the file named by TORCHELASTIC_ERROR_FILE, and takes the earliest timestamp of all workers as
 * the root cause.
 */
#include "base/json_write.h"
#include "base/log.h"
#include "worker/api/abi.h"
#include "worker/api/weft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define VICTIM_SECONDS 10 /* a victim's report stands behind the report of the cause */

void weft_launch_report(const weft_error *given)
{
	const char *path = getenv("TORCHELASTIC_ERROR_FILE");
	weft_error taken, *error = &taken;
	struct error why;
	bool victim;
	struct text text = {0}, message = {0};
	struct json json;
	char stamp[32];
	int file;

	if (!path || !*path)
		return;
	if (abi_take(ABI_ERROR, "weft_launch_report", given, &taken, &why)) {
		log_error_of(why.code, "%s", why.text);
		return;
	}
	victim = error->code == WEFT_E_PEER_LOST || error->code == WEFT_E_CONTROLLER_LOST;
	snprintf(stamp, sizeof(stamp), "%lld",
		 (long long)time(NULL) + (victim ? VICTIM_SECONDS : 0));
	text_format(&message, "WEFT-E%d %s: %s", error->code, weft_strerror(error->code),
		    error->text);
	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key(&json, "message");
	json_put_object(&json);
	json_put_key_string(&json, "message", text_string(&message));
	json_put_key(&json, "extraInfo");
	json_put_object(&json);
	json_put_key_string(&json, "py_callstack", text_string(&message));
	json_put_key_string(&json, "timestamp", stamp);
	json_put_object_end(&json);
	json_put_object_end(&json);
	json_put_object_end(&json);
	/* O_EXCL: whatever failed first in this process keeps its report */
	file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (file >= 0 && text_ok(&text))
		dprintf(file, "%s", text_string(&text));
	if (file >= 0)
		close(file);
	text_fini(&text);
	text_fini(&message);
}
