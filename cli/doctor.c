/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c -- weft doctor: what of this machine weft can use, and what to fix first.
 */
#include "cli/doctor.h"

#include "cli/verb.h"
#include "cli/shown.h"
#include "cli/screen.h"
#include "base/json_write.h"
#include "transport/ofi/settings.h"
#include "transport/transport.h"
#include "transport/verbs/calls.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- findings ---- */

static const char *const state_words[CHECK_STATES] = {"PASS", "SKIP", "WARN", "FAIL"};
static const char *const state_colours[CHECK_STATES] = {"\033[32m", "\033[2m", "\033[33m",
							"\033[31m"};

/* One line stays one line: what a file or a library says may have breaks. */
static void add_line(struct text *text, const char *format, va_list arguments)
{
	char line[ERROR_TEXT_BYTES + 256];

	vsnprintf(line, sizeof(line), format, arguments);
	for (char *at = line; *at; at++)
		if (*at == '\n' || *at == '\t' || *at == '\r')
			*at = ' ';
	text_add(text, line);
}

void finding_say(struct finding *finding, enum check_state state, const char *format, ...)
{
	va_list arguments;

	text_fini(&finding->evidence);
	finding->evidence = (struct text){0};
	finding->state = state;
	va_start(arguments, format);
	add_line(&finding->evidence, format, arguments);
	va_end(arguments);
}

void finding_worsen(struct finding *finding, enum check_state state)
{
	if (state > finding->state)
		finding->state = state;
}

void finding_detail(struct finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add_line(&finding->details, format, arguments);
	va_end(arguments);
	text_add(&finding->details, "\n");
}

void finding_fix(struct finding *finding, const char *format, ...)
{
	va_list arguments;

	if (finding->fix.bytes)
		return;
	va_start(arguments, format);
	add_line(&finding->fix, format, arguments);
	va_end(arguments);
}

static void finding_free(struct finding *finding)
{
	text_fini(&finding->evidence);
	text_fini(&finding->details);
	text_fini(&finding->fix);
}

static void print_json(const struct finding *finding)
{
	const char *line = text_string(&finding->details);
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "check", finding->name);
	json_put_key_string(&json, "state", state_words[finding->state]);
	json_put_key_string(&json, "evidence", text_string(&finding->evidence));
	json_put_key_array(&json, "details");
	while (*line) {
		size_t length = strcspn(line, "\n");
		struct text one = {0};

		text_add_bytes(&one, line, length);
		json_put_string(&json, text_string(&one));
		text_fini(&one);
		line += length + (line[length] == '\n');
	}
	json_put_array_end(&json);
	json_put_key_string(&json, "fix", text_string(&finding->fix));
	json_put_line_end(&json);
}

static void print_plain(const struct doctor *doctor, const struct finding *finding)
{
	const char *line = text_string(&finding->details);

	printf("%s%s%s  %-18s %s\n", doctor->colour ? state_colours[finding->state] : "",
	       state_words[finding->state], doctor->colour ? "\033[0m" : "", finding->name,
	       shown(text_string(&finding->evidence)));
	while (*line) {
		size_t length = strcspn(line, "\n");
		struct text one = {0};

		text_add_bytes(&one, line, length);
		printf("        %s\n", shown(text_string(&one)));
		text_fini(&one);
		line += length + (line[length] == '\n');
	}
	if (finding->fix.bytes)
		printf("        fix: %s\n", shown(text_string(&finding->fix)));
}

void doctor_print(struct doctor *doctor, struct finding *finding)
{
	bool why;

	if (finding->evidence.failed || finding->details.failed || finding->fix.failed)
		finding_say(finding, CHECK_FAIL, "out of memory while telling what was found");
	why = finding->why && finding->fix.bytes;
	doctor->counts[finding->state]++;
	if (finding->state > CHECK_SKIP && finding->state > doctor->worst) {
		doctor->worst = finding->state;
		snprintf(doctor->first_name, sizeof(doctor->first_name), "%s", finding->name);
		snprintf(doctor->first_fix, sizeof(doctor->first_fix), "%s%s%s%s",
			 text_string(finding->fix.bytes ? &finding->fix : &finding->evidence),
			 why ? " (" : "", why ? text_string(&finding->evidence) : "",
			 why ? ")" : "");
	}
	if (doctor->options.json)
		print_json(finding);
	else
		print_plain(doctor, finding);
	screen_flush(); /* the next check may take seconds */
	finding_free(finding);
}

void doctor_run(struct doctor *doctor, const struct check *table)
{
	for (const struct check *check = table; check->name; check++) {
		struct finding finding = {.name = check->name};

		if (doctor_meets(doctor, check->needs, &finding))
			check->run(doctor, &finding);
		doctor_print(doctor, &finding);
	}
}

/* ---- what applies ---- */

bool doctor_has_rdma(const struct doctor *doctor)
{
	return doctor->devices.count > 0 || doctor->facts.devices.count > 0;
}

bool doctor_has_card(const struct doctor *doctor)
{
	for (size_t i = 0; i < doctor->facts.devices.count; i++)
		if (!doctor->facts.devices.items[i].soft)
			return true;
	return false;
}

bool doctor_wants(const struct doctor *doctor, const char *transport)
{
	const struct transports *wanted = &doctor->options.wanted;

	return transports_find(wanted, transport) < wanted->count;
}

bool doctor_wants_only(const struct doctor *doctor, const char *transport)
{
	return doctor_wants(doctor, transport) && doctor->options.wanted.count == 1;
}

bool doctor_stays_here(const char *transport)
{
	size_t count;
	const struct transport_provider_info *all = transport_providers(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(all[i].name, transport) == 0)
			return all[i].one_host;
	return false;
}

bool doctor_wants_several(const struct doctor *doctor)
{
	return doctor->options.wanted.count > 1;
}

bool doctor_wants_other(const struct doctor *doctor, const char *transport)
{
	return doctor->options.transport && !doctor_wants(doctor, transport);
}

static bool has_opened(const struct doctor *doctor)
{
	for (size_t i = 0; i < doctor->facts.devices.count; i++)
		if (doctor->facts.devices.items[i].open_errno == 0)
			return true;
	return false;
}

static bool has_pci(const struct doctor *doctor)
{
	char name[SYSTEM_TEXT_BYTES];

	for (size_t i = 0; i < doctor->devices.count; i++)
		if (system_link(&doctor->system, name, sizeof(name),
				"/sys/class/infiniband/%s/device",
				doctor->devices.items[i].text) == 0)
			return true;
	return false;
}

bool doctor_meets(const struct doctor *doctor, unsigned needs, struct finding *finding)
{
	if (needs & (NEEDS_VERBS | NEEDS_RDMA) && doctor_wants_other(doctor, "verbs"))
		finding_say(finding, CHECK_SKIP, "not needed with --transport %s",
			    doctor->options.transport);
	else if (needs & NEEDS_RDMA && !doctor_has_rdma(doctor))
		finding_say(finding, CHECK_SKIP, "no RDMA device in this kernel");
	else if (needs & NEEDS_LIVE && !doctor->live)
		finding_say(finding, CHECK_SKIP, "cannot be told from files: %s is a copied tree",
			    doctor->options.root);
	else if (needs & NEEDS_OPENED && !has_opened(doctor))
		finding_say(finding, CHECK_SKIP, "no device could be opened");
	else if (needs & NEEDS_PCI && !has_pci(doctor))
		finding_say(finding, CHECK_SKIP, "no RDMA device on PCI");
	else
		return true;
	return false;
}

enum check_state check_share(size_t good, size_t all)
{
	return !good ? CHECK_FAIL : good < all ? CHECK_WARN : CHECK_PASS;
}

const struct verbs_device *doctor_nic(const struct doctor *doctor, uint32_t rail,
				      const struct verbs_port **port)
{
	const struct verbs_nic_choice *nic = &doctor->nics[rail];
	const struct verbs_device *device = &doctor->facts.devices.items[nic->device];

	*port = &device->ports.items[nic->port];
	return device;
}

/* ---- facts ---- */

static uint32_t distance(void *context, const struct verbs_device *device)
{
	const struct doctor *doctor = context;

	if (!doctor->topology || !device->pci[0])
		return TOPOLOGY_UNKNOWN;
	return verbs_topology_distance(doctor->topology, NULL, device->pci);
}

static void doctor_open(struct doctor *doctor)
{
	struct ofi_settings tcp;

	doctor->system.root = doctor->live ? "" : doctor->options.root;
	doctor->devices_errno =
		system_list(&doctor->system, &doctor->devices, "/sys/class/infiniband");
	system_gpus_read(&doctor->system, &doctor->gpus);
	if (verbs_settings_read(&doctor->settings, doctor->options.nics ? doctor->options.nics : "",
				getenv, &doctor->settings_error) != 0)
		verbs_settings_default(&doctor->settings);
	(void)ofi_settings_read(&tcp, doctor->options.nics, getenv, &doctor->tcp_settings_error);
	if (!doctor->live)
		return;
	if (verbs_topology_open(&doctor->topology, NULL) != 0)
		doctor->topology = NULL;
	if (verbs_facts_read(verbs_calls_system(), &doctor->facts, &doctor->facts_error) == 0)
		doctor->nics_chosen =
			verbs_nics_choose(&doctor->facts, &doctor->settings, 0, distance, doctor,
					  doctor->nics, VERBS_NICS_MAX, &doctor->nic_count,
					  &doctor->nics_error) == 0;
}

static void doctor_close(struct doctor *doctor)
{
	verbs_topology_close(&doctor->topology);
	verbs_facts_free(&doctor->facts);
	array_free(&doctor->devices);
	array_free(&doctor->gpus);
}

/* ---- verdict ---- */

/* Of several: which work here, and the rule by which pairs use them. */
static void say_list(const struct doctor *doctor, struct text *text)
{
	const struct transports *wanted = &doctor->options.wanted;
	char names[TRANSPORTS_TEXT_BYTES];
	const char *separator = "";

	for (uint32_t i = 0; i < wanted->count; i++) {
		if (!doctor->works[i])
			continue;
		text_format(text, "%s%s", separator, wanted->names[i]);
		separator = ", ";
	}
	text_format(
		text,
		" work%s here: each pair uses the first of %s that both sides have and that reaches",
		strcmp(separator, "") && text->bytes == strlen(doctor->uses) ? "s" : "",
		transports_text(wanted, names));
	if (doctor->tcp_works && !doctor->tcp_far)
		text_add(text, "; over loopback tcp reaches this host alone");
}

/* What works here is no promise for the peer. */
static void say_peer(const struct doctor *doctor, struct text *text)
{
	static const struct {
		const char *before, *after;
	} rows[] = {
		[PEER_UNTRIED] = {"; the way to ", " was not tried"},
		[PEER_FAILED] = {"; none of it gets to ", ""},
		[PEER_BY_TCP] = {"; it does not get to ", ", --transport tcp does"},
	};
	const struct transports *wanted = &doctor->options.wanted;
	const char *separator = "usable here: ";

	for (uint32_t i = 0; i < wanted->count; i++)
		if (doctor->works[i]) {
			text_format(text, "%s%s", separator, wanted->names[i]);
			separator = ", ";
		}
	if (!wanted->count)
		text_format(text, "%s%s%s", separator, doctor->uses,
			    doctor->tcp_works && doctor->peer != PEER_BY_TCP ? ", tcp" : "");
	text_format(text, "%s%s%s", rows[doctor->peer].before, doctor->options.peer,
		    rows[doctor->peer].after);
}

static void say_uses(const struct doctor *doctor, struct text *text)
{
	if (!doctor->live) {
		text_format(text, "%s was looked at, nothing was tried", doctor->options.root);
		return;
	}
	if (doctor->options.peer && doctor->peer != PEER_REACHED && doctor->uses[0]) {
		say_peer(doctor, text);
	} else if (doctor_wants_several(doctor) && doctor->uses[0]) {
		say_list(doctor, text);
	} else if (strcmp(doctor->uses, "verbs") == 0) {
		text_add(text, "verbs will be used, over");
		for (uint32_t i = 0; i < doctor->nic_count; i++) {
			const struct verbs_port *port;
			const struct verbs_device *device = doctor_nic(doctor, i, &port);

			text_format(text, "%s %s:%u", i ? "," : "", device->name, port->number);
		}
	} else if (doctor->uses[0]) {
		bool near = doctor_stays_here(doctor->uses);
		bool tcp = strcmp(doctor->uses, "tcp") == 0;

		text_format(text, "%s will be used%s%s", doctor->uses,
			    near || (tcp && !doctor->tcp_far) ? ", within this host only" : "",
			    near && doctor->tcp_far ? "; between hosts --transport tcp works" : "");
	} else {
		text_add(text, "no transport works here");
	}
}

static void print_verdict(const struct doctor *doctor)
{
	struct text text = {0};
	struct json json;

	say_uses(doctor, &text);
	if (!doctor->first_name[0])
		text_add(&text, "; nothing to fix");
	else
		text_format(&text, "; fix first: %s: %s", doctor->first_name, doctor->first_fix);
	if (!doctor->options.json) {
		printf("verdict: %s\n", shown(text_string(&text)));
		text_fini(&text);
		return;
	}
	json_put_line(&json, stdout);
	json_put_key_string(&json, "verdict", text_string(&text));
	json_put_key_string(&json, "transport", doctor->uses);
	json_put_key_string(&json, "fix_first", doctor->first_fix);
	json_put_key_u64(&json, "pass", doctor->counts[CHECK_PASS]);
	json_put_key_u64(&json, "warn", doctor->counts[CHECK_WARN]);
	json_put_key_u64(&json, "fail", doctor->counts[CHECK_FAIL]);
	json_put_key_u64(&json, "skip", doctor->counts[CHECK_SKIP]);
	json_put_line_end(&json);
	text_fini(&text);
}

static int exit_code(const struct doctor *doctor)
{
	/* what was asked for by name is not to be had: as a job that asks for it would end */
	if (doctor->live && doctor->options.transport && !doctor->uses[0])
		return error_exit_code(ERROR_UNSUPPORTED);
	return doctor->counts[CHECK_FAIL] ? 1 : 0;
}

static int diagnose(struct doctor *doctor)
{
	const char *no_colour = getenv("NO_COLOR");

	doctor->colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
	doctor_run(doctor, doctor_rdma_checks);
	doctor_run(doctor, doctor_link_checks);
	doctor_run(doctor, doctor_host_checks);
	doctor_run(doctor, doctor_cuda_checks);
	doctor_run(doctor, doctor_gpudirect_checks);
	doctor_run(doctor, doctor_last_checks);
	if (doctor->options.peer)
		doctor_peer_run(doctor);
	print_verdict(doctor);
	return exit_code(doctor);
}

/* ---- options ---- */

static void take_port(void *taken, const char *argument, struct argp_state *state)
{
	struct doctor_options *options = taken;
	uint64_t value;

	if (!parse_u64(argument, &value) || value > 65535)
		argp_error(state, "--port %s: a number from 0 to 65535 is needed", argument);
	else
		options->port = (uint16_t)value;
	options->port_given = true;
}

static void take_transport(void *taken, const char *argument, struct argp_state *state)
{
	static const char *const known[] = {"verbs", "shm", "cuda", "tcp", "efa"};
	struct doctor_options *options = taken;
	struct error error;
	size_t found = 0;
	int rc = transports_parse(&options->wanted, argument, &error);

	for (size_t i = 0; !rc && i < ARRAY_SIZE(known); i++)
		found += transports_find(&options->wanted, known[i]) < options->wanted.count;
	if (rc || found < options->wanted.count)
		argp_error(
			state,
			"--transport %s: verbs, shm, cuda, tcp or efa is needed, a list of them such "
			"as shm,verbs,tcp, or auto, which is " TRANSPORTS_AUTO "%s%s",
			argument, rc ? ": " : "", rc ? error.text : "");
	options->transport = argument;
}

static void check_together(void *taken, struct argp_state *state)
{
	const struct doctor_options *options = taken;

	if (options->serve && options->peer)
		argp_error(state, "--serve and --peer exclude each other: one host serves, the "
				  "other one asks");
	if (options->root && (options->serve || options->peer))
		argp_error(state, "--root looks at files; --%s needs a machine that lives",
			   options->serve ? "serve" : "peer");
	if (options->port_given && !options->serve && !options->peer)
		argp_error(state,
			   "--port is where --serve listens or --peer asks: give one of them");
	if (options->port_given && options->peer && options->port == 0)
		argp_error(state,
			   "--port 0 with --peer: give the port that the other side serves on");
	if (options->nics && !*options->nics)
		argp_error(state, "--nic is '': name devices, or leave it out");
	if (options->nics && options->wanted.count == 1 && doctor_stays_here(options->transport))
		argp_error(state, "--nic with --transport %s: %s uses no NIC", options->transport,
			   options->transport);
	if (options->trust.key_file && !options->serve && !options->peer)
		argp_error(state,
			   "--key is for the two sides of --serve and --peer: give one of them");
	if (options->trust.insecure && !options->serve)
		argp_error(state, "--insecure says to whom --serve listens: leave it out here");
	if (options->serve && options->json)
		argp_error(state, "--serve prints no checks: --json is for the side with --peer");
	if (options->root && system_exists(&(struct system){""}, "%s", options->root) != 0)
		argp_error(state, "--root %s: there is no such folder", options->root);
}

static int run(void *taken, struct error *error)
{
	struct doctor_options *options = taken;
	struct doctor doctor = {0};
	int rc = options->serve || options->peer ? socket_trust_read(&options->trust, error) : 0;

	if (rc)
		return rc;
	doctor = (struct doctor){.options = *options, .live = !options->root};
	doctor_open(&doctor);
	rc = options->serve ? doctor_serve(&doctor, error) : diagnose(&doctor);
	doctor_close(&doctor);
	key_forget(&doctor.options.trust.key);
	key_forget(&options->trust.key);
	return rc;
}

#define AT(member) .offset = offsetof(struct doctor_options, member)

static const struct verb_option rows[] = {
	{"peer", 0, "HOST[:PORT]",
	 "test the way to this host too; `weft doctor --serve` runs there", VERB_TEXT, AT(peer)},
	{"serve", 0, NULL, "be that other host, for one --peer after the other", VERB_FLAG,
	 AT(serve)},
	{"port", 0, "N", "TCP port of --serve and --peer (default 29610; --serve 0: a free one)",
	 VERB_TAKE, .take = take_port},
	{"key", 0, "FILE",
	 "the job's key, or an observer's, on both sides: without one --serve listens to this host "
	 "alone (WEFT_KEY_FILE; docs/trust.md)",
	 VERB_TEXT, AT(trust.key_file)},
	{"insecure", 0, NULL,
	 "--serve other hosts without a key: whoever reaches the port can write into the test's memory",
	 VERB_FLAG, AT(trust.insecure)},
	{"transport", 'T', "NAME|LIST",
	 "verbs, shm, cuda, tcp or efa: try it alone, and fail when it cannot be used. A list such as "
	 "shm,verbs,tcp, or auto (" TRANSPORTS_AUTO "): try just those, and fail when none of them "
	 "can be used",
	 VERB_TAKE, .take = take_transport},
	{"nic", 0, "MAP", "which NICs, as weft-worker's --nic", VERB_TEXT, AT(nics)},
	{"json", 0, NULL, "one object a line: the checks, then a summary", VERB_FLAG, AT(json),
	 .as_is = true},
	{"root", 0, "DIR",
	 "read the files of a copied tree with proc, sys and dev instead of this machine's",
	 VERB_TEXT, AT(root)},
	{0},
};

static const struct verb doctor_verb = {
	VERB_OF(struct doctor_options, rows),
	.defaults = &(const struct doctor_options){.port = DOCTOR_PORT},
	.too_many = "'%s' is not an option",
	.check = check_together,
	.doc = "Checks what of this machine weft can use: PASS, WARN, FAIL or SKIP, with what was "
	       "found and how to fix it. It ends with a write through each transport and one line "
	       "of verdict. Exit code: 0 without a FAIL, 1 with one, 78 when the transport asked "
	       "for, or all of a list, cannot be used.",
	.run = run,
};

const struct command doctor_commands[] = {
	{"doctor", NULL, "what of this machine weft can use, and what to fix first", &doctor_verb},
	{0},
};
