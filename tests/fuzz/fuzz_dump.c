/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text becomes a routing dump whose indexes all mean something, or an error. A dump's
 * canonical text is a dump again, with the same text; and every other form can be written.
 */
#include "routing/report/diff.h"
#include "routing/report/dump.h"
#include "routing/report/export.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

static char *text_of(const struct dump *dump, size_t *bytes)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, bytes);

	must(stream != NULL);
	dump_put(stream, dump, DUMP_WHOLE);
	must(fclose(stream) == 0);
	return text;
}

static void check_forms(const struct dump *dump)
{
	static const char *const forms[] = {"csv", "jsonl", "dot"};
	struct dump *again = NULL;
	struct diff diff = {0};
	size_t bytes, second_bytes;
	char *text = text_of(dump, &bytes), *second;

	must(dump_parse(&again, text, bytes, "canonical", NULL) == 0);
	second = text_of(again, &second_bytes);
	must(bytes == second_bytes && memcmp(text, second, bytes) == 0);
	for (size_t i = 0; dump->has_routes && i < sizeof(forms) / sizeof(forms[0]); i++) {
		char *form = NULL;
		FILE *stream = open_memstream(&form, &bytes);

		must(export_find(forms[i])->write(stream, dump, NULL) == 0);
		fclose(stream);
		free(form);
	}
	if (dump->has_routes)
		must(diff_of(&diff, dump, again, NULL) == 0);
	diff_fini(&diff);
	free(second);
	free(text);
	dump_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct dump *dump;
	uint64_t next = 0;
	int rc = dump_parse(&dump, (const char *)data, size, "fuzz", &error);

	if (rc) {
		must(!dump && rc < 0 && error.text[0]);
		return 0;
	}
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		must(route->tensor < dump->names.count);
		must(route->trainer < dump->labels.trainer_count);
		must(route->inference < dump->labels.inference_count);
		must(route->piece_count > 0 && route->piece_first == next);
		next += route->piece_count;
	}
	must(next == dump->piece_count);
	for (size_t p = 0; p < dump->piece_count; p++) {
		const struct route_piece *piece = &dump->pieces[p];

		must(piece->param < dump->names.count && piece->path < PATH_COUNT);
		must(piece->src.dims >= 1 && piece->src.dims <= BOX_DIMS_MAX);
		for (uint32_t d = 0; d < piece->src.dims; d++)
			must(piece->src.lo[d] < piece->src.hi[d]);
	}
	must(dump->report.own.trainer_bytes && dump->report.round_robin.sessions);
	must((dump->labels.topology != NULL) == dump->report.has_certificate);
	check_forms(dump);
	dump_free(&dump);
	return 0;
}
