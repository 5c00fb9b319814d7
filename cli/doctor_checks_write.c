/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks_write.c -- the writes that probe a transport by using it, and over which interface.
 */
#include "cli/doctor.h"

#include "base/clock.h"
#include "transport/ofi/interfaces.h"
#include "transport/ofi/ip.h"
#include "transport/ofi/settings.h"
#include "transport/transport.h"
#include <stdio.h>
#include <stdlib.h>

#define INTERFACES_MAX 64

/* What is said to others, that the doctor would tell more, is no news here. */
static int said_here(const struct error *error)
{
	const char *tail = strstr(error->text, VERBS_SEE_DOCTOR);

	return (int)(tail ? (size_t)(tail - error->text) : strlen(error->text));
}

static void probe(struct doctor *doctor, struct finding *finding, const char *provider,
		  const char *nics)
{
	uint64_t begin = clock_ns();

	const struct transports *wanted = &doctor->options.wanted;
	uint32_t place = transports_find(wanted, provider);
	struct error error;

	if (transport_probe(provider, nics ? nics : "", &error) != 0) {
		finding_say(finding, doctor_wants_several(doctor) ? CHECK_WARN : CHECK_FAIL, "%.*s",
			    said_here(&error), error.text);
		return;
	}
	finding_say(finding, CHECK_PASS, "8 KiB written, signalled and compared, in %s",
		    SECONDS_TEXT(clock_ns() - begin));
	if (place < wanted->count)
		doctor->works[place] = true;
	if (!doctor->uses[0] || place < transports_find(wanted, doctor->uses))
		snprintf(doctor->uses, sizeof(doctor->uses), "%s", provider);
}

static void check_write_verbs(struct doctor *doctor, struct finding *finding)
{
	if (!doctor_meets(doctor, NEEDS_RDMA, finding)) {
		if (doctor_wants(doctor, "verbs"))
			finding_worsen(finding,
				       doctor_wants_several(doctor) ? CHECK_WARN : CHECK_FAIL);
		return;
	}
	probe(doctor, finding, "verbs", doctor->options.nics);
	if (finding->state == CHECK_FAIL && doctor->counts[CHECK_FAIL])
		finding_fix(finding, "%s, which failed above, comes first", doctor->first_name);
}

/* Writes by a transport that needs no device; of others than asked for there is nothing to say. */
static void check_write(struct doctor *doctor, struct finding *finding, const char *transport,
			const char *nics)
{
	if (doctor_wants_other(doctor, transport)) {
		finding_say(finding, CHECK_SKIP, "not asked for: --transport %s",
			    doctor->options.transport);
		return;
	}
	probe(doctor, finding, transport, nics);
}

static void check_write_shm(struct doctor *doctor, struct finding *finding)
{
	check_write(doctor, finding, "shm", NULL);
}

/* --nic and WEFT_NIC name RDMA devices, unless tcp or efa was asked for. */
static const char *take_nics(const struct doctor *doctor, const char *transport)
{
	if (doctor_wants(doctor, transport))
		return doctor->options.nics;
	unsetenv("WEFT_NIC");
	return NULL;
}

/* What tcp takes here, as transport/ofi does it. */
static bool tcp_takes(struct ofi_settings *settings, const char *nics, struct ofi_interface *all,
		      uint32_t *count)
{
	return ofi_settings_read(settings, nics, getenv, NULL) == 0 &&
	       ofi_interfaces_read(all, INTERFACES_MAX, count, NULL) == 0 &&
	       ofi_interfaces_choose(all, count, settings->nics, settings->nics_from, 0, NULL) == 0;
}

/* The write has arrived: over which interface, and whether another host can be reached over it. */
static void say_interfaces(struct doctor *doctor, struct finding *finding, const char *nics)
{
	struct ofi_interface all[INTERFACES_MAX];
	struct ofi_settings settings;
	struct text said = {0};
	uint32_t count;

	if (!tcp_takes(&settings, nics, all, &count))
		return;
	text_format(&said, "%s, over", text_string(&finding->evidence));
	for (uint32_t i = 0; i < count; i++) {
		char address[IP_TEXT_BYTES];

		text_format(&said, "%s %s %s", i ? "," : "", all[i].name,
			    ip_text(&all[i].addresses[0], address));
		doctor->tcp_far |= !all[i].loopback;
	}
	if (doctor->tcp_far) {
		finding_say(finding, CHECK_PASS, "%s", text_string(&said));
	} else if (settings.nics[0]) {
		finding_say(finding, CHECK_PASS, "%s, as %s says: loopback reaches this host alone",
			    text_string(&said), settings.nics_from);
	} else {
		finding_say(finding, CHECK_WARN, "only loopback: no other host can be reached (%s)",
			    text_string(&said));
		finding_fix(finding,
			    "bring up the interface that the other hosts reach, with an address of "
			    "its own (ip addr; one of 169.254.0.0/16 or fe80::/10 does not do); in "
			    "a container: its host's network (docker --network=host), or one of "
			    "its own");
	}
	text_fini(&said);
}

/* Where nobody asked for it, that it does not work (no interface but many, say) is no failure. */
static void check_write_tcp(struct doctor *doctor, struct finding *finding)
{
	const char *nics = take_nics(doctor, "tcp");

	check_write(doctor, finding, "tcp", nics);
	doctor->tcp_works = finding->state == CHECK_PASS;
	if (doctor->tcp_works)
		say_interfaces(doctor, finding, nics);
	if (doctor->options.nics && !doctor->options.transport)
		finding_detail(finding,
			       "--nic %s names RDMA devices, as no --transport is given; with "
			       "--transport tcp it names network interfaces",
			       doctor->options.nics);
	if (finding->state == CHECK_FAIL && !doctor_wants_only(doctor, "tcp"))
		finding->state = CHECK_WARN;
}

static void check_write_efa(struct doctor *doctor, struct finding *finding)
{
	if (!doctor_wants(doctor, "efa")) {
		finding_say(finding, CHECK_SKIP, "only with --transport efa");
		return;
	}
	check_write(doctor, finding, "efa", take_nics(doctor, "efa"));
}

static void check_write_cuda(struct doctor *doctor, struct finding *finding)
{
	if (!doctor_wants(doctor, "cuda")) {
		finding_say(finding, CHECK_SKIP, "only with --transport cuda");
		return;
	}
	check_write(doctor, finding, "cuda", NULL);
}

const struct check doctor_last_checks[] = {
	{"write-verbs", NEEDS_LIVE, check_write_verbs}, {"write-shm", NEEDS_LIVE, check_write_shm},
	{"write-cuda", NEEDS_LIVE, check_write_cuda},	{"write-tcp", NEEDS_LIVE, check_write_tcp},
	{"write-efa", NEEDS_LIVE, check_write_efa},	{0}};
