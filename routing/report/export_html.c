/* SPDX-License-Identifier: Apache-2.0
 *
 * export_html.c -- fills in the page of the HTML report (routing/report/page/, built into the library):
 *
 *   page.html   .. {{title}} .. {{labels}} .. {{verdict}} .. {{figures}} .. {{lists}} .. {{data}}
 *
 * All that a person must read, above all the figures, is plain HTML: it can be read without
 * scripts, and compared line by line. Names are foreign text and are escaped wherever they stand.
 */
#include "routing/report/export_html.h"

#include "base/memory.h"
#include "base/text.h"
#include "routing/report/diff.h"
#include "routing/report/export_page.h"
#include "routing/plan/order.h"
#include "routing/plan/policy.h"
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static void put_text(FILE *file, const char *text)
{
	static const char special[] = "&<>\"'";
	static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

	for (; *text; text++) {
		const char *found = strchr(special, *text);

		if (found)
			fputs(entities[found - special], file);
		else
			fputc(*text, file);
	}
}

/* ---- labels ---- */

static void put_label(FILE *file, const char *label, const char *value, const char *rule)
{
	if (!value || !value[0])
		return;
	fprintf(file, "<div><dt>%s</dt><dd><bdi>", label);
	put_text(file, value);
	fputs("</bdi>", file);
	if (rule) {
		fputs("<small>", file);
		put_text(file, rule);
		fputs("</small>", file);
	}
	fputs("</dd></div>\n", file);
}

static void put_title(const struct page *page)
{
	put_text(page->file,
		 page->dump->labels.model[0] ? page->dump->labels.model : "routing table");
	fputs(", ", page->file);
	put_text(page->file, page->dump->labels.policy);
}

static void put_model(const struct page *page)
{
	put_text(page->file,
		 page->dump->labels.model[0] ? page->dump->labels.model : "A job without a name");
}

static void put_labels(const struct page *page)
{
	const struct dump *dump = page->dump;
	const struct policy *policy = policy_find(dump->labels.policy);
	const struct order *order = order_find(dump->labels.order);
	char digest[DIGEST_TEXT_BYTES], ranks[2][64];

	snprintf(ranks[0], sizeof(ranks[0]), "%" PRIu32 " trainer%s", dump->labels.trainer_count,
		 dump->labels.trainer_count == 1 ? "" : "s");
	snprintf(ranks[1], sizeof(ranks[1]), "%" PRIu32 " inference rank%s",
		 dump->labels.inference_count, dump->labels.inference_count == 1 ? "" : "s");
	put_label(page->file, "from", ranks[0], dump->labels.train);
	put_label(page->file, "to", ranks[1], dump->labels.infer);
	put_label(page->file, "policy", dump->labels.policy, policy ? policy->rule : NULL);
	put_label(page->file, "send order", dump->labels.order, order ? order->rule : NULL);
	put_label(page->file, "digest", digest_text(dump->labels.digest, digest), NULL);
}

/* ---- the verdict: what someone in a hurry needs ---- */

static void put_verdict(const struct page *page)
{
	const struct summary *own = page->own;
	char makespan[TEXT_SHORT_BYTES], bound[TEXT_SHORT_BYTES], receiver[TEXT_SHORT_BYTES];

	bytes_text(own->makespan_bytes, makespan);
	bytes_text(own->lower_bound_bytes, bound);
	bytes_text(own->receiver_bound_bytes, receiver);
	if (own->makespan_bytes == own->lower_bound_bytes)
		fprintf(page->file,
			"The busiest trainer sends <strong>%s</strong>, the least possible.",
			makespan);
	else
		fprintf(page->file,
			"The busiest trainer sends <strong>%s</strong>, <strong>%.3g&nbsp;%%</strong> "
			"above the least possible %s.",
			makespan, own->gap * 100, bound);
	if (own->receiver_bound_bytes > own->makespan_bytes)
		fprintf(page->file,
			" An inference rank receives up to %s, so with equal NICs on both sides "
			"<strong>receivers</strong> set the pace.",
			receiver);
	else if (own->receiver_bound_bytes < own->makespan_bytes)
		fprintf(page->file,
			" No inference rank receives more than %s, so with equal NICs on both "
			"sides <strong>senders</strong> set the pace.",
			receiver);
	else
		fputs(" The busiest inference rank receives as much.", page->file);
}

/* ---- the figures ---- */

enum shown_as { SHOWN_BYTES, SHOWN_COUNT, SHOWN_PERCENT, SHOWN_RATIO };

struct shown_figure {
	const char *key, *name;
	enum shown_as kind;
	const char *meaning;
	size_t at; /* of the summary's member: a double where it is a ratio, else a uint64_t */
	double (*ratio)(const struct summary *summary); /* where it is no member */
	uint64_t (*whole)(const struct summary *summary, const struct dump *dump);
	bool rare; /* shown where there is any */
};

#define AT(member) .at = offsetof(struct summary, member)

static double prepared_ratio_of(const struct summary *summary)
{
	return summary->prepared_minimum_bytes
		       ? (double)summary->prepared_bytes / (double)summary->prepared_minimum_bytes
		       : 1;
}

static uint64_t sessions_of(const struct summary *summary, const struct dump *dump)
{
	uint64_t all = 0;

	for (uint32_t t = 0; t < dump->labels.trainer_count; t++)
		all += summary->sessions[t];
	return all;
}

static uint64_t sessions_most_of(const struct summary *summary, const struct dump *dump)
{
	return summary_sessions_max(summary, dump->labels.trainer_count);
}

static const struct shown_figure figures[] = {
	{"bytes_total", "one update", SHOWN_BYTES,
	 "All bytes that the inference ranks receive together.", AT(bytes_total)},
	{"makespan_bytes", "busiest trainer (makespan)", SHOWN_BYTES,
	 "What the trainer with most bytes sends: with equal NICs, no update ends before it has.",
	 AT(makespan_bytes)},
	{"lower_bound_bytes", "least possible (bound)", SHOWN_BYTES,
	 "The smallest makespan that any plan could reach if every tensor could be cut at will "
	 "among the trainers that hold it; exact.",
	 AT(lower_bound_bytes)},
	{"gap", "above the bound (gap)", SHOWN_PERCENT,
	 "Makespan over bound, less one. 0 % cannot be improved.", AT(gap)},
	{"receiver_bound_bytes", "busiest inference rank", SHOWN_BYTES,
	 "What the rank with the largest need receives. The layout fixes it; no plan changes it.",
	 AT(receiver_bound_bytes)},
	{"imbalance", "imbalance", SHOWN_RATIO,
	 "Busiest trainer over the mean of all trainers. Above 1 even at the bound where some "
	 "stages hold more than others.",
	 AT(imbalance)},
	{"prepared_bytes", "prepared", SHOWN_BYTES,
	 "Every distinct box counted once for each trainer that has to read or pack it.",
	 AT(prepared_bytes)},
	{"prepared_minimum_bytes", "least that must be prepared", SHOWN_BYTES,
	 "Every distinct box counted once in all.", AT(prepared_minimum_bytes)},
	{"prepared_ratio", "prepared over the least", SHOWN_RATIO,
	 "How many trainers prepare the same box, on average; 1 repeats no work.",
	 .ratio = prepared_ratio_of},
	{"sessions_most", "most sessions of a trainer", SHOWN_COUNT,
	 "Inference ranks that one trainer writes to: connections it keeps open.",
	 .whole = sessions_most_of},
	{"sessions", "sessions", SHOWN_COUNT,
	 "Pairs of a trainer and an inference rank with at least one route.", .whole = sessions_of},
	{"routes", "routes", SHOWN_COUNT,
	 "Tensors, or parts of them, with the trainer chosen for one inference rank.", AT(routes)},
	{"pieces", "pieces", SHOWN_COUNT,
	 "Runs of bytes in inference memory: each is one write, or several where it is large.",
	 AT(pieces)},
	{"direct", "direct", SHOWN_BYTES, "Sent from where the trainer has them; no copy.",
	 AT(path_bytes[PATH_DIRECT])},
	{"mapped", "mapped", SHOWN_BYTES,
	 "Packed straight into the inference rank's mapped memory; one copy, which is the "
	 "transfer.",
	 AT(path_bytes[PATH_MAPPED])},
	{"replica", "replica", SHOWN_BYTES,
	 "Packed into pinned memory in the target's layout, then written; one copy and the "
	 "write.",
	 AT(path_bytes[PATH_REPLICA])},
	{"landed", "landed", SHOWN_BYTES,
	 "Written beside the inference rank's memory, which peers cannot write or only in short "
	 "runs, and put in place by the rank.",
	 AT(path_bytes[PATH_LANDED]), .rare = true},
};

static void put_value(const struct page *page, const struct shown_figure *figure,
		      const struct summary *summary)
{
	const void *member = (const char *)summary + figure->at;

	double ratio = 0;
	uint64_t whole = 0;

	if (figure->kind == SHOWN_PERCENT || figure->kind == SHOWN_RATIO)
		ratio = figure->ratio ? figure->ratio(summary) : *(const double *)member;
	else
		whole = figure->whole ? figure->whole(summary, page->dump)
				      : *(const uint64_t *)member;
	fputs("<td>", page->file);
	if (figure->kind == SHOWN_BYTES)
		fprintf(page->file, "%s<small>%s</small>", BYTES_TEXT(whole), GROUPED_TEXT(whole));
	else if (figure->kind == SHOWN_COUNT)
		fputs(GROUPED_TEXT(whole), page->file);
	else if (figure->kind == SHOWN_PERCENT)
		fprintf(page->file, "%.4g&nbsp;%%", ratio * 100);
	else
		fprintf(page->file, "%.5g", ratio);
	fputs("</td>", page->file);
}

static void put_seconds(const struct page *page, const struct dump *dump, bool bound)
{
	const struct certificate *certificate = &dump->report.certificate;
	double seconds = bound ? certificate->bound_seconds : certificate->makespan_seconds;

	fprintf(page->file, "<td>%s<small>", SECONDS_TEXT((uint64_t)(seconds * 1e9)));
	put_text(page->file, bound ? certificate->bound_limit : certificate->makespan_limit);
	fputs("</small></td>", page->file);
}

/* The same three in seconds, where a topology says how fast the wires are. */
static void put_certificates(const struct page *page)
{
	static const char *const rows[][3] = {
		{"makespan_seconds", "makespan on the topology",
		 "The limit that is busy longest, at full speed: no update takes less. Wires only: no "
		 "packing, no latency."},
		{"bound_seconds", "least possible on the topology",
		 "No plan of any cuts is faster under these NICs and uplinks; the limit that says so."},
		{"gap_seconds", "above it",
		 "Makespan on the topology over the least possible, less one."},
	};
	const struct dump *dumps[2] = {page->dump, page->beside};

	for (int row = 0; row < 3; row++) {
		fprintf(page->file, "<tr id=\"figure-%s\"><th scope=\"row\">%s</th>", rows[row][0],
			rows[row][1]);
		for (int d = 0; d < (page->other ? 2 : 1); d++) {
			if (!dumps[d] || !dumps[d]->report.has_certificate)
				fputs("<td>not known</td>", page->file);
			else if (row < 2)
				put_seconds(page, dumps[d], row == 1);
			else
				fprintf(page->file, "<td>%.4g&nbsp;%%</td>",
					dumps[d]->report.certificate.gap * 100);
		}
		fprintf(page->file, "<td class=\"meaning\">%s</td></tr>\n", rows[row][2]);
	}
}

static bool any_of(const struct page *page, const struct shown_figure *figure)
{
	const uint64_t *own = (const void *)((const char *)page->own + figure->at);
	const uint64_t *other =
		page->other ? (const void *)((const char *)page->other + figure->at) : NULL;

	return *own || (other && *other);
}

static void put_figures(const struct page *page)
{
	FILE *file = page->file;

	fputs("<thead><tr><th scope=\"col\">figure</th><th scope=\"col\" class=\"own\"><bdi>",
	      file);
	put_text(file, page->dump->labels.policy);
	fputs("</bdi></th>", file);
	if (page->other) {
		fputs("<th scope=\"col\" class=\"other\"><bdi>", file);
		put_text(file, page->other_name);
		fputs("</bdi></th>", file);
	}
	fputs("<th scope=\"col\">what it means</th></tr></thead>\n<tbody>\n", file);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		if (figures[i].rare && !any_of(page, &figures[i]))
			continue;
		fprintf(file, "<tr id=\"figure-%s\"><th scope=\"row\">%s</th>", figures[i].key,
			figures[i].name);
		put_value(page, &figures[i], page->own);
		if (page->other)
			put_value(page, &figures[i], page->other);
		fprintf(file, "<td class=\"meaning\">%s</td></tr>\n", figures[i].meaning);
	}
	if (page->dump->report.has_certificate)
		put_certificates(page);
	fputs("</tbody>\n", file);
}

/* ---- the lists ---- */

static void put_names(FILE *file, const char *id, const char *what, const struct names *names)
{
	if (names->count == 0)
		return;
	fprintf(file, "<details id=\"%s\"><summary>%s (%zu)</summary>\n<ul>\n", id, what,
		names->count);
	for (size_t i = 0; i < names->count; i++) {
		fputs("<li><bdi>", file);
		put_text(file, names->items[i]);
		fputs("</bdi></li>\n", file);
	}
	fputs("</ul></details>\n", file);
}

static void put_lists(const struct page *page)
{
	const struct report *report = &page->dump->report;

	put_names(page->file, "unwanted", "Tensors that are held, but wanted by no inference rank",
		  &report->unwanted);
	put_names(page->file, "filled",
		  "Parameters with bytes that have no source by design; the inference rank zeroes "
		  "them",
		  &report->filled);
	if (report->filled.count)
		fprintf(page->file, "<p>%s of such bytes on all inference ranks.</p>\n",
			BYTES_TEXT(report->filled_bytes));
	if (!report->unwanted.count && !report->filled.count)
		fputs("<p>Nothing: every tensor that is held is wanted, and every byte of every "
		      "parameter has a source.</p>\n",
		      page->file);
}

static void put_version(const struct page *page)
{
	fputs(WEFT_VERSION, page->file);
}

/* ---- the page ---- */

static const struct {
	const char *mark;
	void (*put)(const struct page *page); /* NULL: page_put_data, which can fail */
} marks[] = {
	{"{{title}}", put_title},     {"{{model}}", put_model},	    {"{{labels}}", put_labels},
	{"{{verdict}}", put_verdict}, {"{{figures}}", put_figures}, {"{{lists}}", put_lists},
	{"{{data}}", NULL},	      {"{{version}}", put_version},
};

static int put_page(const struct page *page, struct error *error)
{
	const char *text = page_template, *mark;
	int rc = 0;

	while (!rc && (mark = strstr(text, "{{"))) {
		size_t which = 0;

		fwrite(text, 1, (size_t)(mark - text), page->file);
		while (which < sizeof(marks) / sizeof(marks[0]) &&
		       strncmp(mark, marks[which].mark, strlen(marks[which].mark)) != 0)
			which++;
		if (which == sizeof(marks) / sizeof(marks[0])) {
			fputs("{{", page->file);
			text = mark + 2;
			continue;
		}
		if (marks[which].put)
			marks[which].put(page);
		else
			rc = page_put_data(page, error);
		text = mark + strlen(marks[which].mark);
	}
	if (!rc)
		fputs(text, page->file);
	return rc;
}

int export_html(FILE *file, const struct dump *dump, const struct dump *beside,
		const struct measured *measured, struct error *error)
{
	struct page page = {file, dump, beside, &dump->report.own, NULL, NULL, measured};
	const char *policy = beside ? beside->labels.policy : "round-robin";
	const char *also = strcmp(policy, dump->labels.policy) == 0 ? " (beside)" : "";
	int rc = beside ? diff_same_job(dump, beside, error) : 0;

	if (rc)
		return rc;
	if (beside)
		page.other = &beside->report.own;
	else if (!also[0])
		page.other = &dump->report.round_robin;
	page.other_name = memory_format("%s%s", policy, also);
	if (!page.other_name)
		return memory_error(error, "naming a plan", strlen(policy) + strlen(also) + 1);
	rc = put_page(&page, error);
	memory_free(page.other_name);
	return rc;
}
