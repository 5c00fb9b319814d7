# SPDX-License-Identifier: Apache-2.0
"""What a user does wrong, and the message and exit code they get."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import job as jobs
import pytest

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=1"


def one_error(process, *words, code):
    """Exactly one error line, with its code and all the words."""
    assert process.code == code, f"exit {process.code}: {process.stderr}"
    lines = [line for line in process.stderr.splitlines() if "WEFT-E" in line]
    assert lines, process.stderr
    for word in words:
        assert word in lines[-1], f"'{word}' is not in: {lines[-1]}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_missing_worker__is_named_at_the_join_deadline(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, "engines=1,tp=2") as job:
        job.controller("--join-timeout", "2s")
        job.worker("trainer", 0, "--join-timeout", "10s")
        job.worker("inference", 1, "--join-timeout", "10s")
        job.wait(20)
        for name in ("controller", "trainer-0", "inference-1"):
            one_error(job.processes[name], "trainer 1", "inference 0", code=75)


def test_missing_controller__is_named_with_its_address(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        job.worker("trainer", 0, "--join-timeout", "1s")
        job.wait(20)
        one_error(job.processes["trainer-0"], "tcp://127.0.0.1:9", code=75)


def test_duplicate_rank__is_refused_and_the_job_goes_on(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.worker("trainer", 0)
        while "trainer-0" not in job.processes:
            pass
        time.sleep(0.7)
        job.worker("trainer", 0, name="second")
        job.wait(20, ["second"])
        one_error(job.processes["second"], "trainer 0", code=78)
        job.worker("trainer", 1)
        job.worker("inference", 0)
        codes = job.wait(30)
        assert {codes[n] for n in codes if n != "second"} == {0}, job.said()


def test_other_job__is_refused_naming_both(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER, "blue") as job:
        job.controller()
        job.name = "green"
        job.worker("trainer", 0)
        job.wait(20, ["trainer-0"])
        one_error(job.processes["trainer-0"], "blue", "green", code=78)


def test_rank_outside_the_world__is_refused(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.worker("trainer", 7)
        job.wait(20, ["trainer-7"])
        one_error(job.processes["trainer-7"], "7", "world=2", code=78)


def test_tensor_with_two_shapes__names_tensor_and_both_shapes(tmp_path, models):
    other = jobs.make_model(tmp_path / "other", "qwen2", intermediate_size=192)
    with jobs.Job(tmp_path / "job", models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.worker("trainer", 0)
        job.worker("inference", 0)
        job.model = other
        job.worker("trainer", 1)
        job.wait(30)
        for name in job.processes:
            one_error(job.processes[name], "gate_proj.weight", "160", "192", code=78)


def test_parameter_without_a_source__is_named(tmp_path, models):
    deeper = jobs.make_model(tmp_path / "deeper" / "x", "qwen2", num_hidden_layers=4)
    shallow = models["qwen2"]
    with jobs.Job(tmp_path / "job", shallow, TRAIN, INFER) as job:
        job.controller()
        job.worker("trainer", 0)
        job.worker("trainer", 1)
        job.model = deeper
        job.worker("inference", 0)
        job.wait(30)
        for name in job.processes:
            one_error(job.processes[name], "model.layers.3.", code=78)


def test_tensor_no_one_wants__is_listed_and_the_job_runs(tmp_path, models):
    deeper = jobs.make_model(tmp_path / "deeper" / "x", "qwen2", num_hidden_layers=4)
    with jobs.Job(tmp_path / "job", deeper, TRAIN, INFER) as job:
        controller = job.controller(env={"WEFT_LOG": "info"})
        job.worker("trainer", 0)
        job.worker("trainer", 1)
        job.model = models["qwen2"]
        job.worker("inference", 0)
        job.succeed()
        assert "model.layers.3." in controller.stderr
        job.verify(jobs.expected(models["qwen2"], INFER), [])


def test_wrong_flags__say_what_and_exit_2(tmp_path):
    cases = [
        ([jobs.WORKER], "; --controller, --model, --train and --infer are missing"),
        ([jobs.WORKER, "--controller", "tcp://x:1", "--model", "m", "--train", "world=1"], "; --infer is missing"),
        ([jobs.WORKER, "--nonsense"], "nonsense"),
        ([jobs.WORKER, "--controller", "tcp://x:1", "--updates", "many"], "many"),
        ([jobs.WORKER, "--join-timeout", "0"], "'0' is no time"),
        ([jobs.WORKER, "--update-timeout", "0s"], "'0s' is no time"),
        ([jobs.WORKER, "--ring-bytes", "0"], "'0' is no size"),
        ([jobs.WORKER, "--job", ""], "'' is empty"),
        ([jobs.WORKER, "--transport", ""], "'' is empty"),
        ([jobs.WORKER, "--rank", ""], "'' is not a number"),
        ([jobs.WORKER, "--rank", "99999999999999999999"], "from 0 to 2147483647"),
        ([jobs.CONTROLLER, "--train", "world=2"], "--infer"),
        ([jobs.CONTROLLER, "--infer", "engines=3"], "--train is needed, for example --train world=4 --infer engines=2,tp=2: it says "
         "which ranks to wait for, also where programs declare tensors of their own (weft.h)"),
        ([jobs.CONTROLLER, "--join-timeout", "soon"], "soon"),
        ([jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=2", "--policy", "best"], "these are: greedy, "),
        ([jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=2", "--commit", "most"], "--commit 'most' is none of engine"),
        ([jobs.WEFT, "model", "tensors"], ""),
        ([jobs.WEFT, "route", "plan"], "--model"),
        ([jobs.WEFT, "nothing"], "nothing"),
        ([jobs.WEFT, "bench", "update", "--updates", "0"], "0"),
    ]
    for number, (command, word) in enumerate(cases):
        process = jobs.Process(f"case-{number}", command, tmp_path)
        process.popen.wait(20)
        assert process.code == 2, f"{command}: exit {process.code}: {process.stderr}"
        assert word in process.stderr, f"{command}: {process.stderr}"


def test_wrong_configuration__says_what_and_exits_78(tmp_path, models):
    cases = [
        ([jobs.WEFT, "model", "tensors", "Qwen9-9B"], "Qwen9-9B"),
        ([jobs.WEFT, "route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=3,pp=2", "--infer", "tp=2"], "pp=2"),
        ([jobs.WEFT, "route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=3"], "3 ranks"),
        ([jobs.CONTROLLER, "--train", "world=x", "--infer", "tp=2"], "world"),
        ([jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=2", "--bind", "tcp://203.0.113.1:1", "--insecure"],
         "cannot listen on tcp://203.0.113.1"),
    ]
    for number, (command, word) in enumerate(cases):
        process = jobs.Process(f"case-{number}", command, tmp_path)
        process.popen.wait(20)
        assert process.code in (75, 78), f"{command}: exit {process.code}: {process.stderr}"
        assert word in process.stderr, f"{command}: {process.stderr}"


def test_missing_checkpoint__names_the_path(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", INFER) as job:
        job.controller("--join-timeout", "3s")
        job.start("trainer-0", [jobs.WORKER, "--controller", job.address, "--job", "test", "--model", job.model,
                                "--train", job.train, "--infer", job.infer, "--role", "trainer", "--rank", "0",
                                "--checkpoint", tmp_path / "nowhere"])
        job.wait(20)
        one_error(job.processes["trainer-0"], "nowhere", code=1)


def started(job, role, rank, *flags, env=None, checkpoint=None):
    return job.start(f"{role}-{rank}", [jobs.WORKER, "--controller", job.address, "--job", "test", "--model", job.model,
                                        "--train", job.train, "--infer", job.infer, "--role", role, "--rank", rank,
                                        "--checkpoint", checkpoint or job.model, *flags], env)


# what a trainer fails at before it joined, and what everybody reads of it
BEFORE_JOIN = [
    ("checkpoint", {"checkpoint": "/nowhere/at all"}, 1, "/nowhere/at all"),
    ("model", {"flags": ["--model", "Qwen9-9B"]}, 78, "Qwen9-9B"),
    ("transport", {"flags": ["--transport", "pigeon"]}, 78, "pigeon"),
    ("hostile", {"checkpoint": "/nowhere/\x1b[2J%s%n\n{}"}, 1, "/nowhere/"),
]


@pytest.mark.parametrize("how", BEFORE_JOIN, ids=[row[0] for row in BEFORE_JOIN])
@pytest.mark.parametrize("keyed", (False, True), ids=("open", "keyed"))
def test_failure_before_join__is_what_everybody_reads_and_nobody_waits(tmp_path, models, how, keyed):
    _, wrong, code, word = how
    env = {}
    if keyed:
        env["WEFT_KEY_FILE"] = str(tmp_path / "job.key")
        jobs.weft("key", "make", env["WEFT_KEY_FILE"])
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller(env=env)
        job.worker("trainer", 1, env=env)
        job.worker("inference", 0, env=env)
        while job.processes["controller"].stderr.count(" joins") < 2:
            time.sleep(0.02)
        started(job, "trainer", 0, *wrong.get("flags", []), env=env, checkpoint=wrong.get("checkpoint"))
        codes = job.wait(20)  # the deadlines are 60 s and 120 s
        assert set(codes.values()) == {code}, f"{codes}\n{job.said()}"
        for name in ("controller", "trainer-1", "inference-0"):
            one_error(job.processes[name], "trainer 0 (host ", "failed before the job ran", word, code=code)
            assert "\x1b" not in job.processes[name].stderr
        one_error(job.processes["trainer-0"], word, code=code)


def test_failure_before_join__reaches_who_comes_after_it(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        started(job, "trainer", 0, checkpoint="/nowhere")
        job.wait(20, ["trainer-0"])
        job.worker("trainer", 1)
        job.worker("inference", 0)
        job.wait(20)
        for name in job.processes:
            one_error(job.processes[name], "/nowhere", code=1)


def test_failure_before_join__of_the_rank_that_starts_the_controller_reaches_the_others(tmp_path, models):
    """Rank 0 of --controller auto: its controller lives until the others have read why."""
    port = free_port()
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
           "WEFT_KEY_FILE": str(tmp_path / "job.key")}
    jobs.weft("key", "make", env["WEFT_KEY_FILE"])
    with jobs.Job(tmp_path, models["qwen2"], "world=1", INFER) as job:
        for rank, checkpoint in ((1, job.model), (0, "/nowhere")):
            job.start(f"rank-{rank}", [jobs.WORKER, "--controller", "auto", "--model", job.model, "--train", job.train,
                                       "--infer", job.infer, "--checkpoint", checkpoint, "--verify"],
                      {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        job.wait(30)
        for process in job.processes.values():
            one_error(process, "/nowhere", code=1)


def test_killed_rank_that_started_the_controller__is_named_as_the_cause(tmp_path, models):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
           "WEFT_KEY_FILE": str(tmp_path / "job.key")}
    jobs.weft("key", "make", env["WEFT_KEY_FILE"])
    with jobs.Job(tmp_path, models["qwen2"], "world=1", INFER) as job:
        for rank in (0, 1):
            job.start(f"rank-{rank}", [jobs.WORKER, "--controller", "auto", "--model", job.model, "--train", job.train,
                                       "--infer", job.infer, "--checkpoint", job.model, "--json", "--updates", 9999,
                                       "--interval", "10ms"], {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        deadline = time.monotonic() + 20
        while not job.processes["rank-1"].updates():
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.01)
        job.kill("rank-0")
        job.wait(20)
        one_error(job.processes["rank-1"], "the process that started the controller", "rank 0", "has ended", code=75)


def test_nobody_listening__is_said_soon_and_is_not_an_unreachable_host(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:  # its queue is full: what comes gets no answer
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        for name, port in (("refused", free_port()), ("deaf", deaf.getsockname()[1])):
            job.address = f"tcp://127.0.0.1:{port}"
            job.worker("trainer", 0, "--join-timeout", "4s", name=name)
        job.wait(20)
        for filler in fillers:
            filler.close()
        for name, said, other in (("refused", "nobody listens there (connection refused)", "no answer from there"),
                                  ("deaf", "no answer from there", "nobody listens")):
            one_error(job.processes[name], said, "4.0 s", code=75)
            lines = [line for line in job.processes[name].stderr.splitlines() if "trying on" in line]
            assert len(lines) == 1 and said in lines[0] and other not in job.processes[name].stderr, lines


def test_another_program_on_the_controllers_port__is_said_to_be_none(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job, socket.socket() as silent, socket.socket() as loud:
        for name, listener in (("silent", silent), ("loud", loud)):
            listener.bind(("127.0.0.1", 0))
            listener.listen(16)
            job.address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            job.worker("trainer", 0, "--join-timeout", "3s", name=name)
        loud.settimeout(0.1)
        callers = []
        while job.processes["loud"].code is None:
            with contextlib.suppress(TimeoutError):
                callers.append(loud.accept()[0])
                callers[-1].sendall(b"220 mail.example.org ESMTP\r\n")
        job.wait(10)
        for caller in callers:
            caller.close()
        one_error(job.processes["silent"], "somebody listens there and says nothing", "does not speak ZMTP", code=75)
        one_error(job.processes["loud"], "no weft-controller", code=75)


def test_checkpoint_of_another_dtype__is_named_before_the_job_starts(tmp_path, models):
    config = json.loads((pathlib.Path(models["qwen2"]) / "config.json").read_text())
    config["torch_dtype"] = "float16"
    other = tmp_path / "half"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(config))
    with jobs.Job(tmp_path, other, "world=1,source=gathered", INFER) as job:
        job.controller("--join-timeout", "3s")
        job.start("trainer-0", [jobs.WORKER, "--controller", job.address, "--job", "test", "--model", job.model,
                                "--train", job.train, "--infer", job.infer, "--role", "trainer", "--rank", "0",
                                "--checkpoint", models["qwen2"]])
        job.wait(20)
        one_error(job.processes["trainer-0"], "model.embed_tokens.weight", "is BF16", "needs F16", code=1)


def test_worker_that_fails_between_updates__is_not_taken_for_done(tmp_path, models):
    """A digest that cannot be written, after version 1 is published."""
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.worker("trainer", 0, updates=2)
        job.worker("inference", 0, "--digests", "/dev/full", updates=2)
        codes = job.wait(20)
        assert set(codes.values()) == {1}, job.said()
        for name in ("controller", "trainer-0"):
            one_error(job.processes[name], "inference 0 (host ", "failed at version 1: /dev/full: No space left", code=1)


def test_unwritable_dump__fails_before_anybody_waits(tmp_path):
    (tmp_path / "file").write_text("")
    for number, dump in enumerate((tmp_path / "no" / "folder" / "x.json", tmp_path, tmp_path / "file" / "x.json", "/proc/x.json")):
        process = jobs.Process(f"case-{number}", [jobs.CONTROLLER, "--train", TRAIN, "--infer", INFER, "--bind",
                                                  "tcp://127.0.0.1:0", "--dump", dump], tmp_path)
        process.popen.wait(20)
        one_error(process, "--dump", str(dump), code=1)
        assert "listening" not in process.stderr
    assert (tmp_path / "file").read_text() == ""


def test_dump_folder_that_goes_away__fails_before_anything_is_published(tmp_path, models):
    folder = tmp_path / "dumps"
    folder.mkdir()
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--dump", folder / "x.json")
        assert not list(folder.iterdir())  # nothing was left by looking
        folder.rmdir()
        job.workers(updates=1)
        job.wait(30)
        one_error(job.processes["controller"], "x.json", code=1)
        assert not job.digests(0)


def test_sigterm__ends_everyone_with_a_message(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--interval", "200ms", updates=1000)
        time.sleep(1.5)
        job.kill("controller", signal.SIGTERM)
        codes = job.wait(20)
        assert all(code == 75 for code in codes.values()), f"{codes}\n{job.said()}"
        assert "controller" in job.processes["trainer-0"].stderr


def test_report__of_worker_is_json_lines(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers(updates=2)
        job.succeed()
        for line in job.processes["inference-0"].stdout.splitlines():
            json.loads(line)


def test_help_of_a_noun__lists_its_verbs():
    for noun, verb in (("model", "layout"), ("checkpoint", "verify"), ("route", "plan"), ("bench", "update")):
        done = jobs.weft(noun, "--help")
        assert verb in done.stdout and done.stderr == ""
        assert jobs.weft(noun, check=False).returncode == 2


def test_full_standard_output__is_a_failure():
    for command in (["model", "list"], ["model", "tensors", "Qwen2.5-0.5B"], ["--help"],
                    ["route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([jobs.WEFT, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 1 and done.stderr.count("WEFT-E111") == 1, f"{command}: {done.stderr}"


def test_output_to_a_pipe__is_written_and_the_pipe_stays(tmp_path):
    (tmp_path / "out").symlink_to("/proc/self/fd/1")
    done = jobs.weft("route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2",
                     "--output", tmp_path / "out")
    assert '"schema":"weft.routing/1"' in done.stdout
    assert (tmp_path / "out").is_symlink()


def test_port_out_of_range__is_refused(tmp_path):
    for port in ("99999", "-1", "x"):
        bind = f"tcp://127.0.0.1:{port}"
        process = jobs.Process(f"port-{port}", [jobs.CONTROLLER, "--train", "world=1", "--infer", "tp=1", "--bind", bind],
                               tmp_path)
        process.popen.wait(20)
        one_error(process, bind, code=78)


def test_controller_that_cannot_be_started__is_said_at_once(tmp_path, models):
    lonely = tmp_path / "weft-worker"
    shutil.copy(jobs.WORKER, lonely)
    process = jobs.Process("lonely", [lonely, "--controller", "auto", "--model", models["qwen2"], "--checkpoint",
                                      models["qwen2"], "--train", "world=1", "--infer", "tp=1"], tmp_path,
                           {"PATH": "/nowhere", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": "29500", "LD_LIBRARY_PATH": str(jobs.BIN)})
    process.popen.wait(10)
    one_error(process, "weft-controller", "PATH", code=78)


def test_readers_of_the_output_that_go_away__do_not_end_the_job(tmp_path, models):
    reader, writer = os.pipe()
    os.close(reader)
    port = tmp_path / "port"
    specs = ["--train", "world=1", "--infer", "tp=1"]
    common = ["--model", models["qwen2"], "--checkpoint", models["qwen2"], "--rank", "0", *specs]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": writer, "stderr": writer}
    processes = [subprocess.Popen([jobs.CONTROLLER, "--bind", "tcp://127.0.0.1:0", "--port-file", port, *specs], **quiet)]
    try:
        deadline = time.monotonic() + 20
        while not port.exists():
            assert processes[0].poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        address = f"tcp://127.0.0.1:{port.read_text().strip()}"
        for role in ("trainer", "inference"):
            processes.append(subprocess.Popen([jobs.WORKER, "--controller", address, "--role", role, *common], **quiet))
        assert [process.wait(20) for process in processes] == [0, 0, 0]
    finally:
        os.close(writer)
        for process in processes:
            process.kill()
            process.wait()


def test_sighup__ends_everyone_with_a_message(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--interval", "50ms", updates=1000)
        time.sleep(1)
        job.kill("trainer-0", signal.SIGHUP)
        codes = job.wait(20)
        assert all(code == 75 for code in codes.values()), f"{codes}\n{job.said()}"
        assert "trainer 0" in job.processes["controller"].stderr.splitlines()[-1]


def test_worker_with_fewer_updates__is_named_as_having_left(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        for rank in range(2):
            job.worker("trainer", rank, updates=5)
        job.worker("inference", 0, updates=2)
        codes = job.wait(20)
        assert codes["inference-0"] == 0 and codes["controller"] == 75, job.said()
        one_error(job.processes["controller"], "inference 0", "did its work and left", "--updates", code=75)


def test_workers_that_fail_an_update__are_not_taken_for_done(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--update-timeout", "2s")
        job.worker("trainer", 0, "--first-version", "5")
        job.worker("trainer", 1)
        job.worker("inference", 0)
        codes = job.wait(30)
        assert set(codes.values()) == {75}, f"{codes}\n{job.said()}"


def test_killed_trainer__ends_everyone_soon_with_its_name(tmp_path, models):
    import time
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--interval", "20ms", updates=100000)
        time.sleep(1.5)
        job.kill("trainer-1")
        begin = time.monotonic()
        job.wait(20)
        assert time.monotonic() - begin < 4, "longer than the silence that proves a loss"
        for name in ("controller", "trainer-0", "inference-0"):
            one_error(job.processes[name], "trainer 1", code=75)


def test_full_or_closed_output_of_a_worker__is_a_failure(tmp_path, models):
    for number, closed in enumerate((False, True)):
        with jobs.Job(tmp_path / str(number), models["qwen2"], "world=1", INFER) as job:
            job.controller()
            job.worker("trainer", 0)
            command = [jobs.WORKER, "--controller", job.address, "--job", "test", "--model", job.model, "--train",
                       job.train, "--infer", job.infer, "--role", "inference", "--rank", "0", "--updates", "2"]
            target = ">&-" if closed else ">/dev/full"
            done = subprocess.run(["sh", "-c", f'exec "$@" {target}', "sh", *map(str, command)], timeout=30,
                                  stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1 and done.stderr.count("WEFT-E111") == 1, done.stderr
            assert "cannot write to standard output" in done.stderr
            job.succeed()  # the others' work is done


def test_world_that_contradicts_the_specs__is_refused_with_a_role_too(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        job.worker("trainer", 0, "--world", "7")
        job.worker("trainer", 1, env={"WEFT_WORLD_SIZE": "7"})
        job.wait(10)
        for name in job.processes:
            one_error(job.processes[name], "7 workers", "2 trainers", code=78)


def test_flags_without_meaning_for_the_role__are_said_in_one_line(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1", INFER) as job:
        job.controller()
        job.worker("trainer", 0, "--verify", "--shadow", env={"WEFT_RING_BYTES": "64M"})
        job.worker("inference", 0, "--ring-bytes", "64M", "--verify")
        job.succeed()
        for name, words in (("trainer-0", "--verify, --shadow have no meaning for a trainer"),
                            ("inference-0", "--ring-bytes has no meaning for an inference rank")):
            lines = [line for line in job.processes[name].stderr.splitlines() if "no meaning" in line]
            assert len(lines) == 1 and words in lines[0], lines


def test_full_replica__with_a_size_of_the_ring_is_refused(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1", INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        job.worker("trainer", 0, "--replica", "full", "--ring-bytes", "64M")
        job.wait(10)
        one_error(job.processes["trainer-0"], "--ring-bytes", "67108864", "'full'", code=2)


def test_signal__is_named_by_both_roles(tmp_path, models):
    tcp = ["--transport", "tcp", "--nic", "lo"]
    rows = (("trainer-0", signal.SIGTERM, []), ("inference-0", signal.SIGTERM, tcp), ("inference-0", signal.SIGINT, []),
            ("trainer-0", signal.SIGINT, tcp))
    for number, (victim, sent, over) in enumerate(rows):
        with jobs.Job(tmp_path / str(number), models["qwen2"], "world=1", INFER) as job:
            job.controller()
            job.workers("--interval", "50ms", *over, updates=1000)
            while not job.processes["inference-0"].updates():
                time.sleep(0.02)
            job.kill(victim, sent)
            job.wait(20)
            one_error(job.processes[victim], f"interrupted by {sent.name}", code=75)


def test_name_that_does_not_resolve__is_said_soon_and_at_the_deadline(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://no.such.host.invalid:29600"
        job.worker("trainer", 0, "--join-timeout", "6s")
        begin = time.monotonic()
        job.wait(20)
        assert 5.5 < time.monotonic() - begin < 8
        process = job.processes["trainer-0"]
        one_error(process, "6.0 s", "the name no.such.host.invalid does not resolve: ", code=75)
        assert sum("trying on" in line for line in process.stderr.splitlines()) == 1, process.stderr


def test_malformed_controller__is_refused_at_once(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        for number, job.address in enumerate(("tcp:/head:29600", "tcp://he ad:29600", "ipc://x", "tcp://head:0", "::1:5")):
            job.worker("trainer", 0, name=f"case-{number}")
        job.wait(5)
        for process in job.processes.values():
            one_error(process, "controller address", code=78)


def test_absent_controller__costs_the_join_timeout_and_no_more(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.address = "tcp://127.0.0.1:9"
        begin = time.monotonic()
        job.worker("trainer", 0, "--join-timeout", "1s")
        job.wait(20)
        assert time.monotonic() - begin < 1.7


def test_refused_worker__is_the_reason_at_the_deadline(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--join-timeout", "3s")
        job.worker("trainer", 0)
        job.worker("trainer", 1)
        time.sleep(0.7)
        job.worker("inference", 0, "--checksums")
        job.wait(20)
        one_error(job.processes["inference-0"], "checksums 'on'", "declares 'off'", code=78)
        for name in ("controller", "trainer-0", "trainer-1"):
            one_error(job.processes[name], "inference 0 of 1 to join", "inference 0 was refused", "checksums 'on'", code=75)
        warned = [line for line in job.processes["controller"].stderr.splitlines() if " refused: " in line and "WEFT-E" not in line and "fails" not in line]
        assert len(warned) == 1 and "inference 0" in warned[0], warned


def test_refused_worker__may_be_started_again_as_the_others(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1", INFER) as job:
        job.controller()
        job.worker("trainer", 0)
        time.sleep(0.5)
        job.worker("inference", 0, "--checksums", name="wrong")
        job.wait(20, ["wrong"])
        job.worker("inference", 0)
        job.wait(30)
        assert [job.processes[n].code for n in ("controller", "trainer-0", "inference-0")] == [0, 0, 0], job.said()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can be two users")
@pytest.mark.shm
def test_workers_of_two_users__are_told_which_at_once():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        model = jobs.make_model(pathlib.Path(folder) / "models", "qwen2")
        if subprocess.run(["setpriv", "--reuid", "1001", "--clear-groups", jobs.WORKER, "--version"],
                          capture_output=True).returncode:
            pytest.skip("other users may not run the programs of this build")
        with jobs.Job(pathlib.Path(folder) / "job", model, "world=1", INFER) as job:
            job.controller()
            begin = time.monotonic()
            for role, user in (("trainer", "1001"), ("inference", "1002")):
                job.start(role, ["setpriv", "--reuid", user, "--clear-groups", jobs.WORKER, "--controller", job.address,
                                 "--job", "test", "--model", model, "--train", job.train, "--infer", job.infer,
                                 "--role", role, "--rank", "0", "--checkpoint", model])
            job.wait(20)
            assert time.monotonic() - begin < 3
            for process in job.processes.values():
                one_error(process, "user 1001", "user 1002", code=78)
                assert "fd " not in process.stderr
