/* SPDX-License-Identifier: Apache-2.0
 *
 * Every message of the verbs path, word for word: tests/unit/golden/verbs has one file a group,
 * one line a message with its code before it.
 *
 *   WEFT_GOLDEN_WRITE=1 ./test_verbs_errors     from the repository's root; look at the difference
 */
#include "base/array.h"
#include "base/text.h"
#include "transport/verbs/errors.h"

#include <ctype.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#define STATUS_COUNT (IBV_WC_TM_RNDV_INCOMPLETE + 1)
#define FILE_BYTES   (256 * 1024)

static const struct verbs_side here = {
	"mlx5_0", 1, 0x1a2, 0, {[10] = 0xff, [11] = 0xff, 10, 1, 2, 5}, 3, 4096, 9000};
static const struct verbs_side there = {
	"mlx5_3", 1, 0x2b0, 0, {[10] = 0xff, [11] = 0xff, 10, 1, 2, 7}, 3, 4096, 0};

static struct verbs_failure failure_of(int status, enum verbs_kind kind)
{
	static const uint64_t bytes[VERBS_KIND_COUNT] = {1048576, 128, 1, 4096};
	struct verbs_failure failure = {.status = status,
					.kind = kind,
					.bytes = bytes[kind],
					.local = here,
					.remote = there,
					.waited_ns = 3841000000,
					.timeout = 17,
					.retry = 6,
					.rnr_retry = 3,
					.path_mtu = 4096};

	return failure;
}

/* ---- what holds for every message ---- */

static bool in_list(const char *word, const char *const list[])
{
	for (; *list; list++)
		if (strcmp(*list, word) == 0)
			return true;
	return false;
}

static bool is_number(const char *word)
{
	return word[strspn(word, "0123456789.")] == '\0' && isdigit((unsigned char)*word);
}

/* "4096 bytes" and "status 12" say what they are; "4096" alone does not. */
static void check_numbers_have_names(const char *message)
{
	static const char *const before[] = {"status", "error", "timeout", "lid", "errno",
					     "max_mr", "uid",	"port",	   NULL};
	static const char *const after[] = {
		"s",	   "ms",      "us",   "byte", "bytes", "retries", "retry", "rnr",
		"entries", "regions", "NICs", "NIC",  "B",     "kB",	  "MB",	   "GB",
		"TB",	   "EB",      "KiB",  "MiB",  "GiB",   "TiB",	  NULL};
	static const char *const settled[] = {"65536'", NULL}; /* ulimit -n 65536 */
	char copy[ERROR_TEXT_BYTES], last[ERROR_TEXT_BYTES] = "";
	const char *pending = NULL;
	char *save = NULL, *colon;

	snprintf(copy, sizeof(copy), "%s", message);
	for (char *word = strtok_r(copy, " ();,", &save); word;
	     word = strtok_r(NULL, " ();,", &save)) {
		colon = strchr(word, ':');
		if (colon && !colon[1])
			*colon = '\0';
		if (pending && !in_list(word, after))
			fail_msg("%s stands without a unit in: %s", pending, message);
		pending = is_number(word) && !in_list(last, before) && !in_list(word, settled)
				  ? word
				  : NULL;
		snprintf(last, sizeof(last), "%s", word);
	}
	if (pending)
		fail_msg("%s stands without a unit in: %s", pending, message);
}

static void check_message(const struct error *error, int rc)
{
	assert_int_equal(rc, -(int)error->code);
	assert_true(error_known((int)error->code));
	assert_int_not_equal(error->code, ERROR_USAGE);
	if (strcasestr(error->text, "success"))
		fail_msg("speaks of success: %s", error->text);
	assert_null(strchr(error->text, '\n'));
	if (!strstr(error->text, "; "))
		fail_msg("says nothing to do: %s", error->text);
	/* room for what callers put before it */
	if (strlen(error->text) > 800)
		fail_msg("%zu bytes: %s", strlen(error->text), error->text);
	check_numbers_have_names(error->text);
}

static void message_add(struct text *text, const struct error *error, int rc)
{
	check_message(error, rc);
	text_format(text, "%d %s\n", (int)error->code, error->text);
}

/* ---- golden files ---- */

static char *file_read(const char *path)
{
	FILE *file = fopen(path, "r");
	char *data = malloc(FILE_BYTES);
	size_t n;

	if (!file)
		fail_msg("%s: cannot be opened", path);
	n = fread(data, 1, FILE_BYTES - 1, file);
	data[n] = '\0';
	fclose(file);
	return data;
}

static void golden_check(const char *name, struct text *text)
{
	const char *source = getenv("WEFT_SOURCE_DIR");
	const char *got, *line;
	char path[4096], *golden, *want;

	snprintf(path, sizeof(path), "%s/tests/unit/golden/verbs/%s.txt", source ? source : ".",
		 name);
	assert_true(text_ok(text));
	if (getenv("WEFT_GOLDEN_WRITE")) {
		FILE *file = fopen(path, "w");

		assert_non_null(file);
		fputs(text_string(text), file);
		assert_int_equal(fclose(file), 0);
	}
	golden = want = file_read(path);
	for (got = line = text_string(text); *got && *got == *want; got++, want++)
		if (*got == '\n')
			line = got + 1;
	if (*got != *want)
		fail_msg("%s differs from here:\n%.*s", path, (int)strcspn(line, "\n"), line);
	free(golden);
	text_fini(text);
}

/* ---- completions ---- */

static void failure_add(struct text *text, const struct verbs_failure *failure)
{
	char local[VERBS_SIDE_TEXT_BYTES], remote[VERBS_SIDE_TEXT_BYTES], status[64];
	struct error error = {0};
	int rc = verbs_failure_error(failure, &error);

	message_add(text, &error, rc);
	assert_non_null(strstr(error.text, verbs_side_text(&failure->local, local)));
	assert_non_null(strstr(error.text, verbs_side_text(&failure->remote, remote)));
	snprintf(status, sizeof(status), "(status %d, vendor error %u", failure->status,
		 failure->vendor_error);
	assert_non_null(strstr(error.text, status));
}

static void every_status(const char *golden, enum verbs_kind kind)
{
	struct text text = {0};

	for (int status = 0; status < STATUS_COUNT; status++) {
		struct verbs_failure failure = failure_of(status, kind);

		failure_add(&text, &failure);
	}
	golden_check(golden, &text);
}

static void test_failed_write__of_every_status_has_its_message(void **state)
{
	(void)state;
	every_status("write", VERBS_WRITE);
}

static void test_failed_signal__of_every_status_has_its_message(void **state)
{
	(void)state;
	every_status("signal", VERBS_SIGNAL);
}

static void test_failed_first_probe__of_every_status_has_its_message(void **state)
{
	(void)state;
	every_status("probe_byte", VERBS_PROBE_BYTE);
}

static void test_failed_packet_probe__of_every_status_has_its_message(void **state)
{
	(void)state;
	every_status("probe_packet", VERBS_PROBE_PACKET);
}

static void test_vendor_error__narrows_the_cause(void **state)
{
	static const struct {
		int status;
		uint32_t vendor;
	} hints[] = {{IBV_WC_LOC_PROT_ERR, 81},
		     {IBV_WC_WR_FLUSH_ERR, 249},
		     {IBV_WC_REM_ACCESS_ERR, 136},
		     {IBV_WC_RETRY_EXC_ERR, 129}};
	struct text text = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		for (int kind = 0; kind < VERBS_KIND_COUNT; kind++) {
			struct verbs_failure failure =
				failure_of(hints[i].status, (enum verbs_kind)kind);

			failure.vendor_error = hints[i].vendor;
			failure_add(&text, &failure);
		}
	}
	golden_check("vendor", &text);
}

static void test_port_trouble__explains_more_than_the_status(void **state)
{
	struct verbs_failure failure = failure_of(IBV_WC_LOC_QP_OP_ERR, VERBS_WRITE);
	struct error error = {0};

	(void)state;
	failure.port_trouble = VERBS_PORT_DOWN;
	verbs_failure_error(&failure, &error);
	assert_non_null(strstr(error.text, "LOC_QP_OP_ERR"));
	assert_non_null(strstr(error.text, "no link"));
	assert_null(strstr(error.text, "registered"));
	failure.port_trouble = VERBS_PORT_NO_ADDRESS;
	verbs_failure_error(&failure, &error);
	assert_non_null(strstr(error.text, "lost that address"));
	failure.peer_known_dead = true;
	failure.status = IBV_WC_RETRY_EXC_ERR;
	verbs_failure_error(&failure, &error);
	assert_non_null(strstr(error.text, "has died"));
}

static void test_peer_known_dead__explains_what_comes_from_the_peer(void **state)
{
	struct text text = {0};

	(void)state;
	for (int status = 0; status < STATUS_COUNT; status++) {
		struct verbs_failure failure = failure_of(status, VERBS_WRITE);

		failure.peer_known_dead = true;
		failure_add(&text, &failure);
	}
	golden_check("peer_dead", &text);
}

static void test_unknown_status__is_told_by_number(void **state)
{
	static const int unknown[] = {STATUS_COUNT, 77, -1, 1 << 20};
	struct text text = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		struct verbs_failure failure = failure_of(unknown[i], VERBS_WRITE);

		failure_add(&text, &failure);
		failure.peer_known_dead = true;
		failure_add(&text, &failure);
	}
	golden_check("unknown", &text);
	assert_string_equal(verbs_status_name(77), "status 77");
}

static void test_retries__are_told_in_seconds(void **state)
{
	struct text text = {0};

	(void)state;
	for (uint32_t timeout = 1; timeout <= 31; timeout += 5) {
		struct verbs_failure failure = failure_of(IBV_WC_RETRY_EXC_ERR, VERBS_WRITE);

		failure.timeout = timeout;
		failure.retry = timeout % 7;
		failure.waited_ns = UINT64_C(30000) << timeout;
		failure_add(&text, &failure);
	}
	for (uint32_t retry = 0; retry <= 7; retry++) {
		struct verbs_failure failure = failure_of(IBV_WC_RNR_RETRY_EXC_ERR, VERBS_SIGNAL);

		failure.rnr_retry = retry;
		failure_add(&text, &failure);
	}
	golden_check("retries", &text);
}

static void test_codes__tell_callers_whom_to_give_up(void **state)
{
	static const struct {
		int status;
		enum error_code code;
	} rows[] = {{IBV_WC_RETRY_EXC_ERR, ERROR_PEER_LOST},
		    {IBV_WC_RESP_TIMEOUT_ERR, ERROR_PEER_LOST},
		    {IBV_WC_RNR_RETRY_EXC_ERR, ERROR_TIMEOUT},
		    {IBV_WC_REM_ACCESS_ERR, ERROR_TRANSPORT},
		    {IBV_WC_LOC_PROT_ERR, ERROR_TRANSPORT},
		    {IBV_WC_LOC_QP_OP_ERR, ERROR_TRANSPORT},
		    {IBV_WC_WR_FLUSH_ERR, ERROR_TRANSPORT}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_failure failure = failure_of(rows[i].status, VERBS_WRITE);

		assert_int_equal(verbs_failure_error(&failure, NULL), -(int)rows[i].code);
	}
}

static void test_longest_names__leave_the_message_whole(void **state)
{
	struct error error = {0};
	struct verbs_side side = {.port = 255,
				  .qpn = 0xffffff,
				  .lid = 0xffff,
				  .gid_index = 255,
				  .mtu = UINT32_MAX,
				  .netdev_mtu = UINT32_MAX};

	(void)state;
	memset(side.device, 'n', sizeof(side.device) - 1);
	memset(side.gid, 0xfe, sizeof(side.gid));
	for (int status = 0; status <= STATUS_COUNT; status++) {
		for (int kind = 0; kind < VERBS_KIND_COUNT; kind++) {
			struct verbs_failure failure = failure_of(status, (enum verbs_kind)kind);

			failure.local = failure.remote = side;
			failure.vendor_error = failure.timeout = UINT32_MAX;
			failure.retry = failure.rnr_retry = failure.path_mtu = UINT32_MAX;
			failure.bytes = failure.waited_ns = UINT64_MAX;
			verbs_failure_error(&failure, &error);
			if (strlen(error.text) > 960)
				fail_msg("%zu bytes: %s", strlen(error.text), error.text);
		}
	}
	for (int step = 0; step < VERBS_STEP_COUNT; step++) {
		for (int errnum = 0; errnum < 134; errnum++) {
			verbs_connect_error(&error, (enum verbs_step)step, errnum, &side, &side,
					    UINT32_MAX, UINT64_MAX);
			if (strlen(error.text) > 960)
				fail_msg("%zu bytes: %s", strlen(error.text), error.text);
		}
	}
}

static void test_side__without_a_gid_is_told_by_lid(void **state)
{
	struct verbs_side side = here;
	char text[VERBS_SIDE_TEXT_BYTES];

	(void)state;
	side.gid_index = -1;
	side.lid = 12;
	assert_string_equal(verbs_side_text(&side, text), "mlx5_0:1 lid 12 qpn 0x1a2");
	assert_string_equal(verbs_side_text(&here, text),
			    "mlx5_0:1 gid[3] ::ffff:10.1.2.5 qpn 0x1a2");
}

/* docs/verbs.md has a row for every status. */
static void test_documentation__names_every_status(void **state)
{
	const char *source = getenv("WEFT_SOURCE_DIR");
	char path[4096], row[64], *page;

	(void)state;
	snprintf(path, sizeof(path), "%s/docs/verbs.md", source ? source : ".");
	page = file_read(path);
	for (int status = 1; status < STATUS_COUNT; status++) {
		struct verbs_failure failure = failure_of(status, VERBS_WRITE);
		int rc = verbs_failure_error(&failure, NULL);
		const char *code = rc == -ERROR_PEER_LOST ? "PEER_LOST"
				   : rc == -ERROR_TIMEOUT ? "TIMEOUT"
							  : "TRANSPORT";

		snprintf(row, sizeof(row), "| %d `%s` | `%s` |", status, verbs_status_name(status),
			 code);
		if (!strstr(page, row))
			fail_msg("%s has no row %s", path, row);
	}
	free(page);
}

/* ---- set-up ---- */

static const int errnums[] = {0,	  EPERM,       ENOENT,	  EIO,		ENXIO,
			      EAGAIN,	  ENOMEM,      EACCES,	  ENODEV,	EINVAL,
			      ENFILE,	  EMFILE,      ENOSPC,	  ENOSYS,	ENODATA,
			      EOPNOTSUPP, ENETUNREACH, ETIMEDOUT, EHOSTUNREACH, 4000};

static void test_step__failing_with_any_errno_has_its_message(void **state)
{
	struct text text = {0};
	struct error error;

	(void)state;
	for (int step = 0; step < VERBS_STEP_COUNT; step++) {
		for (size_t i = 0; i < ARRAY_SIZE(errnums); i++) {
			int rc = verbs_step_error(&error, (enum verbs_step)step, "rxe0", errnums[i],
						  NULL);

			message_add(&text, &error, rc);
			assert_non_null(strstr(error.text, "rxe0"));
			if (errnums[i] == 0)
				assert_non_null(strstr(error.text, "not supported by rxe0"));
		}
	}
	golden_check("steps", &text);
}

static void test_step__puts_the_callers_words_first(void **state)
{
	struct error error;

	(void)state;
	verbs_step_error(&error, VERBS_STEP_CQ, "rxe0", ENOMEM,
			 "creating a completion queue of %u entries", 4096u);
	assert_memory_equal(error.text,
			    "creating a completion queue of 4096 entries on rxe0 failed: ENOMEM "
			    "(Cannot allocate memory): ",
			    sizeof("creating a completion queue of 4096 entries on rxe0 failed: "
				   "ENOMEM (Cannot allocate memory): ") -
				    1);
}

static struct verbs_side moved(const struct verbs_side *side, const char *what)
{
	struct verbs_side other = *side;

	if (strcmp(what, "subnet") == 0)
		other.gid[14] = 3;
	else if (strcmp(what, "IPv6") == 0)
		memcpy(other.gid, "\x20\x01\x0d\xb8\0\0\0\1\0\0\0\0\0\0\0\7", 16);
	else if (strcmp(what, "InfiniBand") == 0)
		other.gid_index = -1;
	else if (strcmp(what, "MTU") == 0)
		other.mtu = 1024;
	return other;
}

/* The others, too, for errnos that addresses explain. */
static void connect_add(struct text *text, enum verbs_step step, int errnum)
{
	static const char *const others[] = {"same", "subnet", "IPv6", "InfiniBand", "MTU"};
	static const int by_address[] = {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH,
					 ENODEV,    ENODATA,	  EINVAL};
	size_t count = 1;
	struct error error;

	for (size_t i = 0; i < ARRAY_SIZE(by_address); i++)
		if (step == VERBS_STEP_RTR && errnum == by_address[i])
			count = ARRAY_SIZE(others);
	for (size_t i = 0; i < count; i++) {
		struct verbs_side other = moved(&there, others[i]);
		int rc = verbs_connect_error(&error, step, errnum, &here, &other, 4096, 1012000000);

		text_format(text, "%s: ", others[i]);
		message_add(text, &error, rc);
	}
}

static void test_connect__tells_causes_that_only_both_ends_show(void **state)
{
	static const enum verbs_step steps[] = {VERBS_STEP_RTR, VERBS_STEP_INIT, VERBS_STEP_RTS};
	struct text text = {0};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(steps); s++)
		for (size_t i = 0; i < ARRAY_SIZE(errnums); i++)
			connect_add(&text, steps[s], errnums[i]);
	golden_check("connect", &text);
}

static void test_errno__is_found_in_every_way_a_call_returns_it(void **state)
{
	(void)state;
	errno = ENOMEM;
	assert_int_equal(verbs_errno((long)NULL), ENOMEM);
	errno = EINVAL;
	assert_int_equal(verbs_errno(-1), EINVAL);
	errno = EINTR;
	assert_int_equal(verbs_errno(-EBUSY), EBUSY);
	assert_int_equal(verbs_errno(ENOSPC), ENOSPC);
	assert_int_equal(verbs_errno(1L << 40), 0);
	assert_int_equal(verbs_errno(-(1L << 40)), 0);
	errno = 0;
	assert_int_equal(verbs_errno((long)NULL), 0);
	assert_int_equal(verbs_errno(-1), 0);
}

/* ---- registration ---- */

#define MIB (UINT64_C(1) << 20)

static const struct verbs_memlock small = {8 * MIB, 8 * MIB, 0, 1000, false};
static const struct verbs_memlock full = {64 * MIB, 64 * MIB, 60 * MIB + 4096, 1000, false};
static const struct verbs_memlock raisable = {8 * MIB, UINT64_MAX, 0, 1000, false};
static const struct verbs_memlock none = {0, 0, 0, 1000, false};
static const struct verbs_memlock root = {8 * MIB, 8 * MIB, 0, 0, true};
static const struct verbs_memlock endless = {UINT64_MAX, UINT64_MAX, 0, 1000, false};
static const struct verbs_device large = {.max_mr_bytes = UINT64_MAX, .max_mr = 524287};
static const struct verbs_device little = {.max_mr_bytes = 8 * MIB, .max_mr = 1024};

static void test_registration__that_fails_says_which_limit_it_was(void **state)
{
	static const struct {
		int errnum;
		uint64_t bytes;
		uint32_t nics;
		const struct verbs_memlock *memlock;
		const struct verbs_device *limits;
	} rows[] = {
		{ENOMEM, UINT64_C(17179869184), 2, &small, &large},
		{ENOMEM, 8 * MIB, 1, &full, &large},
		{ENOMEM, 16 * MIB, 1, &raisable, &large},
		{ENOMEM, 16 * MIB, 1, &root, &large},
		{ENOMEM, 16 * MIB, 1, &endless, &large},
		{ENOMEM, 16 * MIB, 1, &endless, &little},
		{ENOMEM, 16 * MIB, 1, NULL, NULL},
		{ENOMEM, UINT64_MAX, 8, &small, NULL},
		{EPERM, 16 * MIB, 2, &none, &large},
		{EPERM, 16 * MIB, 1, NULL, NULL},
		{EPERM, 16 * MIB, 1, &endless, &large},
		{EACCES, 16 * MIB, 1, &endless, &large},
		{EFAULT, 16 * MIB, 1, &endless, &large},
		{EINVAL, 16 * MIB, 1, &endless, &little},
		{EINVAL, 16 * MIB, 1, &endless, &large},
		{EOPNOTSUPP, 16 * MIB, 1, &endless, &large},
		{EPROTONOSUPPORT, 16 * MIB, 1, &endless, &large},
		{EBADF, 16 * MIB, 1, &endless, &large},
		{EAGAIN, 16 * MIB, 1, &endless, &large},
		{ENOSPC, 16 * MIB, 1, &endless, &large},
		{ENODEV, 16 * MIB, 1, &endless, &large},
		{0, 16 * MIB, 1, &endless, &large},
		{EIO, 16 * MIB, 1, &endless, NULL},
	};
	struct text text = {0};
	struct error error;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		message_add(&text, &error,
			    verbs_register_error(&error, rows[i].errnum, "mlx5_3", rows[i].bytes,
						 rows[i].nics, rows[i].memlock, rows[i].limits));
	golden_check("register", &text);
}

static void test_registration__exactly_at_the_limit_is_not_blamed_on_it(void **state)
{
	struct error at, over;

	(void)state;
	assert_int_equal(verbs_register_error(&at, ENOMEM, "rxe0", 8 * MIB, 1, &small, NULL),
			 -ERROR_MEMORY);
	assert_int_equal(verbs_register_error(&over, ENOMEM, "rxe0", 8 * MIB + 1, 1, &small, NULL),
			 -ERROR_LIMIT);
	/* on the second NIC, after the first was rolled back */
	assert_int_equal(verbs_register_error(&over, ENOMEM, "rxe0", 5 * MIB, 2, &small, NULL),
			 -ERROR_LIMIT);
}

static void test_memlock__is_read_from_the_status_text(void **state)
{
	static const char status[] = "Name:\tCapEff: 1\nUid:\t0\t1000\t1000\t1000\n"
				     "VmPeak:\t  4 kB\nVmPin:\t    2048 kB\nCapInh:\t0\n"
				     "CapEff:\t0000000000004000\nCapBnd:\t000001ffffffffff\n";
	static const char *const broken[] = {"",
					     "Uid:\t1\t1\nCapEff:\t0\n",
					     "VmPin:\t1 kB\nCapEff:\t0\n",
					     "VmPin:\t1 kB\nUid:\t1\t1\n",
					     "VmPin:\tmany\nUid:\t1\t1\nCapEff:\t0\n",
					     "VmPin:\t1 kB\nUid:\t1\nCapEff:\t0\n"};
	struct verbs_memlock memlock = {0};
	struct error error;

	(void)state;
	assert_int_equal(verbs_memlock_parse(status, &memlock, NULL), 0);
	assert_int_equal(memlock.uid, 1000);
	assert_int_equal(memlock.pinned_bytes, 2 * MIB);
	assert_true(memlock.ipc_lock);
	assert_int_equal(
		verbs_memlock_parse("VmPin:\t0 kB\nUid:\t1\t2\nCapEff:\t000001ffffffbfff\n",
				    &memlock, NULL),
		0);
	assert_false(memlock.ipc_lock);
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		assert_int_equal(verbs_memlock_parse(broken[i], &memlock, &error), -ERROR_IO);
		assert_non_null(strstr(error.text, "no line"));
	}
}

static void test_memlock__of_this_process_is_known(void **state)
{
	struct verbs_memlock memlock;
	struct error error;

	(void)state;
	if (verbs_memlock_read(&memlock, &error))
		fail_msg("%s", error.text);
	assert_int_equal(memlock.uid, geteuid());
	assert_true(memlock.soft <= memlock.hard);
}

static void test_memlock__without_a_descriptor_left_is_an_error(void **state)
{
	struct verbs_memlock memlock;
	struct rlimit limit, no_more;
	struct error error = {0};
	int rc;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	no_more = (struct rlimit){0, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &no_more), 0);
	rc = verbs_memlock_read(&memlock, &error);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(rc, -ERROR_IO);
	assert_string_equal(error.text, "/proc/self/status: Too many open files");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_write__of_every_status_has_its_message),
		cmocka_unit_test(test_failed_signal__of_every_status_has_its_message),
		cmocka_unit_test(test_failed_first_probe__of_every_status_has_its_message),
		cmocka_unit_test(test_failed_packet_probe__of_every_status_has_its_message),
		cmocka_unit_test(test_vendor_error__narrows_the_cause),
		cmocka_unit_test(test_peer_known_dead__explains_what_comes_from_the_peer),
		cmocka_unit_test(test_port_trouble__explains_more_than_the_status),
		cmocka_unit_test(test_unknown_status__is_told_by_number),
		cmocka_unit_test(test_retries__are_told_in_seconds),
		cmocka_unit_test(test_codes__tell_callers_whom_to_give_up),
		cmocka_unit_test(test_documentation__names_every_status),
		cmocka_unit_test(test_longest_names__leave_the_message_whole),
		cmocka_unit_test(test_side__without_a_gid_is_told_by_lid),
		cmocka_unit_test(test_step__failing_with_any_errno_has_its_message),
		cmocka_unit_test(test_step__puts_the_callers_words_first),
		cmocka_unit_test(test_connect__tells_causes_that_only_both_ends_show),
		cmocka_unit_test(test_errno__is_found_in_every_way_a_call_returns_it),
		cmocka_unit_test(test_registration__that_fails_says_which_limit_it_was),
		cmocka_unit_test(test_registration__exactly_at_the_limit_is_not_blamed_on_it),
		cmocka_unit_test(test_memlock__is_read_from_the_status_text),
		cmocka_unit_test(test_memlock__of_this_process_is_known),
		cmocka_unit_test(test_memlock__without_a_descriptor_left_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
