/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error_help.h"

#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

/* One row a code, in the order of error.h. The message itself says what and where; here stands what holds for all of a code. */
#define ROW(name, meaning, remedy) {ERROR_##name, #name, meaning, remedy},
/* clang-format off */
static const struct error_help rows[] = {
	ROW(USAGE, "A command, or a call of the library, was given what it does not take.",
	    "Mend the argument that the message names; --help and weft.h say what is possible. Trying again as it is fails again.")
	ROW(CONFIG, "A flag, a variable, a spec or a file of configuration says what cannot be, or two of them contradict each other.",
	    "The message names where it was read (flag or variable), the value and what is possible: change it there, for all processes of the job alike.")
	ROW(STATE, "A call came when it is not possible: before weft_join, in an update, after a failure.",
	    "Nothing has changed. Mend the order of calls as the message says.")
	ROW(FILE, "A file (checkpoint, config.json, layout file, routing dump, key, topology) is not what it should be.",
	    "The message names file and place: make the file again, or give the right one. A download that broke off is the usual reason; `weft checkpoint verify` looks at a checkpoint whole.")
	ROW(IO, "The system refused to open, read or write something.",
	    "The message ends with the system's own reason: free space, permissions, a folder that is missing, a descriptor limit (ulimit -n).")
	ROW(MEMORY, "There was no memory for something.",
	    "The message says how much and for what: give the process or container more, pack into less (--ring-bytes, --landing-bytes), or leave out --shadow and --replica full. `weft model plan-memory` counts it beforehand.")
	ROW(MESSAGE, "What came over the control channel is no message of weft, or breaks a limit: another program, or damage.",
	    "See who speaks to that port. If it is weft, take the same version everywhere; if all have the same already, this is a bug: report it.")
	ROW(JOB, "The worker's job id is not the controller's.",
	    "Give both the same --job (WEFT_JOB), or the worker the address of its own job's controller.")
	ROW(WIRE_VERSION, "Controller and worker are of versions that do not understand each other.",
	    "Install the same version of weft on all hosts; the message has both wire versions.")
	ROW(DUPLICATE_RANK, "Two processes say that they are the same rank of the same role.",
	    "The message names both hosts: give each its own --rank, or end the old process of an earlier start.")
	ROW(CONFLICT, "Workers of one job declare what does not fit together: labels, transport, checksums, a tensor's shape.",
	    "The message names both workers and both values: start all with the same flags, model and versions.")
	ROW(UNSOURCED, "An engine needs a parameter that no trainer holds.",
	    "The message names it: have a trainer declare it, correct --train or --infer, or see with `weft model check` what the engine expects.")
	ROW(UNPROVED, "A routing table does not write every byte of every parameter exactly once, and was refused.",
	    "For a table of your own, mend the routes that the message names (`weft route verify`). For one that the controller made, this is a bug in weft: report it with the dump.")
	ROW(LIMIT, "Something is larger, or more, than weft takes.",
	    "The message has the limit and the value: make less of it. If your job is in earnest so large, report it.")
	ROW(TIMEOUT, "What somebody waited for did not come within the time.",
	    "The message names who is missing: look at that process's log first. It may have ended, hang, or be slow; if it is slow with good reason, raise the timeout that the message names. Trying again is right.")
	ROW(PEER_LOST, "A worker of the job is gone: it ended, was killed, or was silent too long (--lost-after).",
	    "Look at the log of the worker that the message names, and of its host (out of memory, a lost node). Start the job again, or let it go on without it: --on-loss continue, --restarts.")
	ROW(CONTROLLER_LOST, "The controller is not reached any more, or has ended.",
	    "Look at its log and at the way to its port. Start the job again; with --orphan updates go on until another controller takes over.")
	ROW(TRANSPORT, "The transport could not write, connect or register memory.",
	    "The message has peer, operation and the transport's own reason. `weft doctor` on both hosts, then `weft doctor --peer`, find a link, NIC or limit (memlock) that is wrong. Trying again is right after a link flapped.")
	ROW(UNSUPPORTED, "This host, this build or this pair of hosts cannot do what was asked for.",
	    "The message says what is missing (a library, a device, one host for shm): install it, or choose another --transport or --memory. `weft doctor` says what is possible here.")
	ROW(BOUNDS, "A write would have gone outside of the memory that it was for, and was refused.",
	    "No byte was written. If your program gave sizes or addresses, mend those; else this is a bug in weft: report it.")
	ROW(CHECKSUM, "Bytes that arrived are not those that were sent, or a file is not what its checksum says.",
	    "Nothing was published, and the rank shows its last version or none. Send a version again; when it happens again on one host or link, take that one out: memory, NIC or cable is damaged. A program that changes parameters in place, or a trainer that changes a tensor while it is written, looks the same.")
	ROW(VERSION, "A version is older than what is there, or ranks that show versions together wait for different ones.",
	    "Nothing has changed. Number versions upwards, the same on all ranks; WEFT_VERSION_NEXT waits for whatever trainers begin next.")
	ROW(ABORTED, "An update was given up, by a trainer, by another rank of the engine, or because a worker was lost.",
	    "The message says by whom and why. Wait for the next version: a rank without --shadow shows none until then.")
	ROW(INTERRUPTED, "A signal, or weft_interrupt, ended a wait.",
	    "Nothing is wrong with weft. Look who sent the signal: a launcher that stops the job, a time limit.")
	ROW(POST_LOAD, "The host's own hook, run before a version is shown, said that it failed.",
	    "The version is not shown. Look at what the hook printed; a later version tries again.")
	ROW(UNSAFE, "Memory cannot be given back, or used again, while another process may still write into it.",
	    "End the process that the message names, or end this one: memory of an ended process is safe.")
	ROW(HOST, "The program around weft (a trainer, an engine) failed, and said so with weft_fail, or ended with an error of its own.",
	    "The message carries that program's words: the mistake is there, not in weft.")
	ROW(INTERNAL, "Weft found itself in a state that cannot be.",
	    "Report it with the message, the version (`weft --version`) and the log (WEFT_LOG=debug if it can be made again).")
};
/* clang-format on */
#undef ROW
#define ROWS				  (sizeof(rows) / sizeof(rows[0]))
#define X(name, number, exit_code, words) +1
_Static_assert(ROWS == 0 ERROR_CODES(X), "a code has no row, or two");
#undef X

const struct error_help *error_help_at(unsigned place)
{
	return place < ROWS ? &rows[place] : NULL;
}

const struct error_help *error_help_find(const char *text)
{
	const char *number = text;
	char *end;
	long code;

	if (!strncasecmp(number, "weft-", 5))
		number += 5;
	if (*number == 'E' || *number == 'e')
		number++;
	code = strtol(number, &end, 10);
	for (size_t i = 0; i < ROWS; i++)
		if ((*number && !*end && code == (long)rows[i].code) ||
		    !strcasecmp(text, rows[i].name))
			return &rows[i];
	return NULL;
}
