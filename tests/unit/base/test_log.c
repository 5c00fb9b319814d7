/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of the log: one line, plain, valid JSON, whatever they quote; and who logs waits for nobody.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/error.h"
#include "base/log_repeat.h"
#include "base/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* stderr as a pipe of one page; what is at its other end. */
struct pipe {
	int end, kept;
	char *said;
	size_t bytes;
};

static void pipe_begin(struct pipe *pipe_, const char *format)
{
	int ends[2];

	*pipe_ = (struct pipe){.kept = dup(STDERR_FILENO)};
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fcntl(ends[1], F_SETPIPE_SZ, 4096);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	pipe_->end = ends[0];
	assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[1]);
	setenv("WEFT_LOG_FORMAT", format, 1);
	log_open("test", "");
	log_set_level(LOG_LEVEL_INFO);
}

/* What is there now. */
static void pipe_read(struct pipe *pipe_)
{
	char some[8192];
	ssize_t n;

	while ((n = read(pipe_->end, some, sizeof(some))) > 0) {
		pipe_->said = realloc(pipe_->said, pipe_->bytes + (size_t)n + 1);
		assert_non_null(pipe_->said);
		memcpy(pipe_->said + pipe_->bytes, some, (size_t)n);
		pipe_->bytes += (size_t)n;
		pipe_->said[pipe_->bytes] = '\0';
	}
}

/* Until it says so, ten seconds at most. */
static void pipe_read_until(struct pipe *pipe_, const char *word)
{
	uint64_t end = clock_ms() + 10000;

	do
		pipe_read(pipe_);
	while ((!pipe_->said || !strstr(pipe_->said, word)) && clock_ms() < end);
	assert_non_null(pipe_->said);
	assert_non_null(strstr(pipe_->said, word));
}

static void pipe_end(struct pipe *pipe_)
{
	dup2(pipe_->kept, STDERR_FILENO);
	close(pipe_->kept);
	close(pipe_->end);
	free(pipe_->said);
	setenv("WEFT_LOG_FORMAT", "", 1);
	log_open("test", "");
}

static void check_json(const char *line)
{
	json_error_t error;
	json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	const char *message = json_string_value(json_object_get(row, "message"));

	assert_non_null(row);
	assert_non_null(message);
	assert_true(plain_is(message));
	json_decref(row);
}

static void any_text(char *text, size_t room)
{
	static const char common[] = "\"\\\n\x1b\x7f{}";
	size_t n = (size_t)rand() % room;

	for (size_t k = 0; k < n; k++)
		text[k] = rand() % 2 ? (char)(rand() % 255 + 1) : common[(size_t)rand() % 7];
	text[n] = '\0';
}

/* Of any bytes and any length, up to many times what a line has room for. */
static void anything_in(const char *format, bool json)
{
	static char text[9000];
	struct pipe out;

	srand(7);
	for (int i = 0; i < 400; i++) {
		pipe_begin(&out, format);
		any_text(text, i % 4 ? 200 : sizeof(text));
		if (i == 0)
			memset(text, '"', sizeof(text) - 1);
		log_as(i % 2 ? "t3" : "");
		log_error("message of %s refused", text);
		log_flush();
		pipe_read(&out);
		assert_true(out.bytes > 20 && out.bytes <= LOG_LINE_BYTES);
		assert_ptr_equal(strchr(out.said, '\n'), out.said + out.bytes - 1);
		out.said[out.bytes - 1] = '\0';
		assert_true(plain_is(out.said));
		if (json)
			check_json(out.said);
		else
			assert_non_null(strstr(out.said, "Z E test["));
		pipe_end(&out);
	}
	log_as("");
}

static void test_text_line__is_one_plain_line_whatever_it_quotes(void **state)
{
	(void)state;
	anything_in("", false);
}

static void test_json_line__is_valid_whatever_it_quotes(void **state)
{
	(void)state;
	anything_in("json", true);
}

static char long_line[1200];

static void test_unread_stderr__keeps_nobody_waiting_and_counts_what_is_lost(void **state)
{
	struct pipe out;
	unsigned long long lost = 0, seen = 0, next = 0;
	uint64_t begin = clock_ms();

	(void)state;
	memset(long_line, 'x', sizeof(long_line) - 1);
	pipe_begin(&out, "");
	log_set_level(LOG_LEVEL_DEBUG);
	for (unsigned i = 0; i < 2000; i++) /* 2.4 MB for 1 MiB and a page */
		log_debug("number %u %s", i, long_line);
	assert_true(clock_ms() < begin + 5000);
	pipe_read_until(&out, "log lines were dropped: nobody read stderr");
	log_debug("number 2000");
	log_say("the end");
	pipe_read_until(&out, "\nthe end\n");
	for (char *line = strtok(out.said, "\n"); line; line = strtok(NULL, "\n")) {
		char *number = strstr(line, "] number ");
		unsigned long long more;

		if (number) { /* in order, each once, and the gap is where it is told */
			assert_int_equal(strtoull(number + 9, NULL, 10), next);
			next++;
			seen++;
		} else if (strstr(line, " lines were dropped")) {
			assert_int_equal(sscanf(strchr(line, ']'), "] %llu log", &more), 1);
			lost += more;
			next += more;
		}
	}
	assert_true(lost > 0 && seen > 800);
	assert_int_equal(lost + seen, 2001);
	pipe_end(&out);
}

static void test_reader__that_ends_costs_lines_and_nothing_else(void **state)
{
	struct pipe out;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	pipe_begin(&out, "");
	for (unsigned i = 0; i < 100; i++)
		log_info("number %u %s", i, long_line);
	close(out.end);
	log_flush();
	log_info("for nobody");
	out.end = open("/dev/null", O_RDONLY);
	pipe_end(&out);
	pipe_begin(&out, "");
	log_info("again");
	log_info("and again");
	pipe_read_until(&out, "] and again\n");
	assert_non_null(strstr(out.said, "log lines were dropped"));
	pipe_end(&out);
}

/* ThreadSanitizer lets the child of a process with threads start none. */
static void may_start_threads(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}

static void test_fork__leaves_the_lines_that_wait_to_the_parent(void **state)
{
	struct pipe out;
	int status = -1;
	size_t parents = 0, childs = 0;
	pid_t child;

	(void)state;
	may_start_threads();
	pipe_begin(&out, "");
	for (unsigned i = 0; i < 20; i++)
		log_info("parent %u %s", i, long_line);
	child = fork();
	assert_true(child >= 0);
	if (!child) { /* has no reader either, and ends */
		log_info("child %s", long_line);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	log_info("parent ends");
	pipe_read_until(&out, "parent ends\n");
	for (const char *at = out.said; (at = strstr(at, "] parent ")); at++)
		parents++;
	for (const char *at = out.said; (at = strstr(at, "] child ")); at++)
		childs++;
	assert_int_equal(parents, 21);
	assert_true(childs <= 1);
	pipe_end(&out);
}

/* Of a pipe that another user made nothing can be opened: the thread writes, and takes all there is. */
static void test_another_users_pipe__is_not_waited_for_either(void **state)
{
	struct pipe out;
	int status = -1, go[2];
	pid_t child;
	char byte;

	(void)state;
	if (geteuid() != 0)
		skip();
	may_start_threads();
	pipe_begin(&out, "");
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		alarm(20);
		if (setresuid(65534, 65534, 65534))
			_exit(1);
		for (unsigned i = 0; i < 100; i++)
			log_info("number %u %s", i, long_line);
		byte = 1;
		if (write(go[1], &byte, 1) != 1)
			_exit(2);
		log_say("the end");
		exit(0); /* not before the reader has it */
	}
	close(go[1]);
	assert_int_equal(read(go[0], &byte, 1), 1); /* it got here, and nobody has read */
	pipe_read_until(&out, "\nthe end\n");
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (unsigned i = 0; i < 100; i++) {
		char number[32];

		snprintf(number, sizeof(number), "] number %u x", i);
		assert_non_null(strstr(out.said, number));
	}
	close(go[0]);
	pipe_end(&out);
}

static void *log_many(void *argument)
{
	for (unsigned i = 0; i < 500; i++)
		log_debug("thread %s number %u", (const char *)argument, i);
	return NULL;
}

static void test_threads__log_while_somebody_reads_slowly(void **state)
{
	pthread_t threads[4];
	struct pipe out;
	size_t lines = 0;

	(void)state;
	pipe_begin(&out, "json");
	log_set_level(LOG_LEVEL_DEBUG);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, log_many, (void *)"a\nb"), 0);
	for (int i = 0; i < 4; i++) {
		pipe_read(&out);
		pthread_join(threads[i], NULL);
	}
	log_say("the end");
	pipe_read_until(&out, "\"the end\"}\n");
	for (char *line = strtok(out.said, "\n"); line; line = strtok(NULL, "\n")) {
		check_json(line);
		lines++;
	}
	assert_int_equal(lines, 2001);
	pipe_end(&out);
}

static json_t *last_row(struct pipe *out)
{
	char *end, *begin;
	json_t *row;

	log_flush();
	pipe_read(out);
	end = strrchr(out->said, '\n');
	assert_non_null(end);
	*end = '\0';
	begin = strrchr(out->said, '\n');
	row = json_loads(begin ? begin + 1 : out->said, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(row);
	*end = '\n';
	return row;
}

static void check_text(const json_t *row, const char *key, const char *value)
{
	const char *seen = json_string_value(json_object_get(row, key));

	if (value)
		assert_string_equal(seen, value);
	else
		assert_null(json_object_get(row, key));
}

static void test_json_line__says_who_of_which_job_and_which_code(void **state)
{
	struct pipe out;
	json_t *row;

	(void)state;
	pipe_begin(&out, "json");
	log_info("nobody's");
	row = last_row(&out);
	check_text(row, "role", NULL);
	check_text(row, "job", NULL);
	check_text(row, "code", NULL);
	assert_null(json_object_get(row, "rank"));
	json_decref(row);
	log_as("i17");
	log_of_job("a \"job\"");
	log_warn_of(ERROR_PEER_LOST, "gone");
	row = last_row(&out);
	check_text(row, "level", "warn");
	check_text(row, "role", "inference");
	check_text(row, "job", "a \"job\"");
	check_text(row, "code", "WEFT-E131");
	assert_int_equal(json_integer_value(json_object_get(row, "rank")), 17);
	assert_int_equal(strlen(json_string_value(json_object_get(row, "time"))), 24);
	json_decref(row);
	log_as("t3");
	log_of_job("another");
	log_say("test: WEFT-E130 deadline passed: of nobody");
	row = last_row(&out);
	check_text(row, "level", "error");
	check_text(row, "role", "trainer");
	check_text(row, "code", "WEFT-E130");
	check_text(row, "job", NULL); /* two are here, and whose it is nobody knows */
	json_decref(row);
	log_as("");
	pipe_end(&out);
}

static void test_format__that_is_set_beats_the_variable_until_it_is_taken_back(void **state)
{
	struct pipe out;

	(void)state;
	pipe_begin(&out, "");
	assert_true(log_set_format("json"));
	assert_false(log_set_format("xml"));
	assert_true(log_set_format("json"));
	log_open("test", "");
	log_info("of json");
	json_decref(last_row(&out));
	assert_true(log_set_format(NULL));
	log_info("of text");
	pipe_read_until(&out, "] of text\n");
	pipe_end(&out);
}

static void repeats_in(const char *format)
{
	uint64_t end = clock_ms() + 10000;
	struct pipe out;
	unsigned seen = 0;

	pipe_begin(&out, format);
	for (unsigned i = 0; i < LOG_REPEAT_TEXTS + 57; i++)
		log_warn("the same");
	log_error("another");
	pipe_read_until(&out, "another");
	for (const char *at = out.said; (at = strstr(at, "the same")); at++)
		seen++;
	assert_int_equal(seen, LOG_REPEAT_TEXTS);
	assert_null(strstr(out.said, "times more"));
	while (!strstr(out.said, "last message 57 times more in 0.") && clock_ms() < end) {
		clock_sleep_ms(20);
		log_settle();
		pipe_read(&out);
	}
	assert_non_null(strstr(out.said, "last message 57 times more in 0."));
	if (*format) {
		json_t *row = last_row(&out);

		assert_int_equal(json_integer_value(json_object_get(row, "repeats")), 57);
		json_decref(row);
	}
	pipe_end(&out);
}

static void test_line__that_repeats_is_counted_and_told_once(void **state)
{
	(void)state;
	repeats_in("");
	repeats_in("json");
}

static char sunk[512];

static void sink(void *context, const struct log_record *record)
{
	(void)context;
	snprintf(sunk, sizeof(sunk), "%s", record->message);
}

static void test_sink__gets_plain_text_and_no_line_is_written(void **state)
{
	struct pipe out;

	(void)state;
	pipe_begin(&out, "");
	log_set_sink(sink, NULL);
	log_info("host %s", "a\x1b\nb");
	log_set_sink(NULL, NULL);
	assert_string_equal(sunk, "host a\\x1b\\x0ab");
	pipe_read(&out);
	assert_int_equal(out.bytes, 0);
	pipe_end(&out);
}

/* The last: the file stays open for the rest of the process. */
static void test_log_file__that_is_a_pipe_is_not_waited_for(void **state)
{
	char path[] = "/tmp/weft-log-XXXXXX", fifo[64];
	uint64_t begin = clock_ms();
	struct pipe out;
	int end;

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(fifo, sizeof(fifo), "%s/fifo", path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	end = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(end >= 0);
	setenv("WEFT_LOG_FILE", fifo, 1);
	pipe_begin(&out, "");
	log_set_level(LOG_LEVEL_DEBUG);
	for (unsigned i = 0; i < 500; i++)
		log_debug("number %u %s", i, long_line);
	log_say("to stderr");
	pipe_read_until(&out, "to stderr\n");
	close(out.end);
	out.end = end;
	pipe_read(&out);
	log_info("read again");
	pipe_read_until(&out, "] read again\n");
	assert_non_null(strstr(out.said, "could not be written to WEFT_LOG_FILE"));
	assert_true(clock_ms() < begin + 5000);
	pipe_end(&out);
	unlink(fifo);
	rmdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_line__is_one_plain_line_whatever_it_quotes),
		cmocka_unit_test(test_json_line__is_valid_whatever_it_quotes),
		cmocka_unit_test(test_unread_stderr__keeps_nobody_waiting_and_counts_what_is_lost),
		cmocka_unit_test(test_reader__that_ends_costs_lines_and_nothing_else),
		cmocka_unit_test(test_fork__leaves_the_lines_that_wait_to_the_parent),
		cmocka_unit_test(test_another_users_pipe__is_not_waited_for_either),
		cmocka_unit_test(test_threads__log_while_somebody_reads_slowly),
		cmocka_unit_test(test_json_line__says_who_of_which_job_and_which_code),
		cmocka_unit_test(
			test_format__that_is_set_beats_the_variable_until_it_is_taken_back),
		cmocka_unit_test(test_line__that_repeats_is_counted_and_told_once),
		cmocka_unit_test(test_sink__gets_plain_text_and_no_line_is_written),
		cmocka_unit_test(test_log_file__that_is_a_pipe_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
