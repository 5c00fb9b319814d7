# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a trainer, an inference rank or the controller at random points, many times.

After every kill: each survivor ends with an error that names the missing party inside its
deadline; no version was published that a full recomputation does not confirm; nothing is left."""
import concurrent.futures
import os
import pathlib
import random
import time

import endure
import job as jobs

KILLS = int(os.environ.get("WEFT_SWEEP_KILLS", "200"))
SEED = int(os.environ.get("WEFT_SWEEP_SEED", "1"))
PARALLEL = 4
TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
VICTIMS = ["trainer-0", "trainer-1", "inference-0", "inference-1", "controller"]
NAMES = {"trainer-0": "trainer 0", "trainer-1": "trainer 1", "inference-0": "inference 0",
         "inference-1": "inference 1", "controller": "controller"}
UPDATES = 100000  # more than any run reaches: the kill ends it


def one_kill(number, folder, model, key):
    """One job, one kill; returns (victim, delay, versions published, complaint or None)."""
    chance = random.Random(SEED * 1000003 + number)
    victim, delay = chance.choice(VICTIMS), chance.uniform(0.0, 1.2)
    modes = chance.choice([[], ["--checksums"]])
    inference = chance.choice([[], ["--own-memory"], ["--shadow"]])
    keyed = ["--key", key] if number % 2 else []
    what = f"kill {number} ({victim} after {delay:.3f} s, {modes + inference}{', with a key' if keyed else ''})"
    with jobs.Job(folder, model, TRAIN, INFER) as job:
        job.controller("--heartbeat", "100ms", "--lost-after", "1s", "--join-timeout", "8s", *keyed)
        job.workers(*modes, *keyed, "--join-timeout", "8s", "--update-timeout", "8s", updates=UPDATES,
                    inference_flags=inference)
        time.sleep(delay)
        job.kill(victim)
        job.processes[victim].popen.wait()
        begin = time.monotonic()
        try:
            job.wait(15)
        except AssertionError as error:
            return victim, delay, {}, f"{what}: {error}"
        took = time.monotonic() - begin
        for name, process in job.processes.items():
            if name == victim:
                continue
            if process.code != 75:
                return victim, delay, {}, f"{what}: {name} ended with {process.code}: {process.stderr}"
            if NAMES[victim] not in process.stderr:
                return victim, delay, {}, f"{what}: {name} does not name it: {process.stderr}"
        if took > 10:
            return victim, delay, {}, f"{what}: survivors took {took:.1f} s"
        return victim, delay, {rank: job.digests(rank) for rank in range(job.inference)}, None


def complete(versions, want):
    """All but possibly the last version's record lists must be complete: a kill can cut it."""
    return {version: params for version, params in versions.items() if len(params) == len(want)}


def test_sweep__every_kill_is_named_and_nothing_false_is_published(tmp_path, models):
    before = jobs.leftovers()
    model, expected = models["qwen2"], jobs.expected(models["qwen2"], INFER)
    known, complaints, published = {}, [], 0
    key = tmp_path / "job.key"
    jobs.weft("key", "make", key)
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        runs = [pool.submit(one_kill, number, tmp_path / str(number), model, key) for number in range(KILLS)]
        for run in concurrent.futures.as_completed(runs):
            victim, delay, ranks, complaint = run.result()
            if complaint:
                complaints.append(complaint)
                continue
            for rank, versions in ranks.items():
                for version, params in versions.items():
                    if version not in known:
                        known[version] = expected.digests(version)
                    want = known[version][rank]
                    published += 1
                    if any(want[name] != value for name, value in params.items()):
                        complaints.append(f"{victim} after {delay:.3f} s: version {version} on inference"
                                          f" {rank} was published with wrong bytes")
    assert complaints == [], f"{len(complaints)} of {KILLS}:\n" + "\n".join(complaints[:10])
    assert published > KILLS, "the kills came before anything was published: the sweep proved little"
    assert jobs.leftovers() == before
    running = [path.name for path in pathlib.Path("/proc").glob("[0-9]*")
               if str(tmp_path) in command_line(path)]
    assert running == []


ENGINES = "engines=3,tp=2"
# versions of which little differs, so that with --delta little is sent
WAYS = [[], ["--replica", "full"], ["--transport", "tcp", "--nic", "lo"], ["--transport", "shm,tcp", "--nic", "lo"],
        ["--transport", "tcp", "--nic", "lo", "--replica", "full"]]
FEW, DELTA = ["--change-one-in", 20], [[], ["--delta"]]


def come_again(job, chance, lost, flags, updates):
    """Engines that were lost are started anew, at any moment, and some of them are killed again: their ranks and names."""
    again = []
    for turn in range(chance.choice([0, 1, 2, 3])):
        time.sleep(chance.uniform(0, 0.4))
        first = chance.choice(lost) // 2 * 2
        started = [(rank, f"again{turn}-{rank}") for rank in (first, first + 1)]
        for rank, name in started:
            job.worker("inference", rank, "--join-timeout", "15s", *flags, updates=updates, name=name)
        again += started
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, 0.4))
            job.kill(chance.choice(started)[1])
    return again


def wrong_bytes(versions, rank, expected, known):
    """A complaint for each version of an inference rank that is not what a recomputation gives."""
    for version, params in versions.items():
        if version not in known:
            known[version] = expected.digests(version)
        if params != known[version][rank % 2]:
            yield f"version {version} on inference {rank} was published with wrong bytes"


def lose_engines(number, folder, model, expected, known):
    """One job that goes on when one or two of its three engines lose a rank, and takes others in; complaints."""
    chance, updates = random.Random(SEED * 1000033 + number), 300
    flags, shadow, repeat = chance.choice(WAYS), chance.choice([[], ["--shadow"]]), chance.choice([[], ["--repeat"], ["--admit"]])
    lost, complaints = set(), []
    with jobs.Job(folder, model, TRAIN, ENGINES) as job:
        job.controller("--on-loss", "continue", "--commit", chance.choice(["engine", "rank", "job"]), *chance.choice(DELTA))
        job.workers("--checksums", *FEW, *flags, updates=updates, trainer_flags=["--interval", "5ms", *repeat], inference_flags=shadow)
        while not job.processes["inference-0"].updates() and job.processes["controller"].code is None:
            time.sleep(0.005)
        for engine in chance.sample(range(3), chance.choice([1, 2])):
            time.sleep(chance.uniform(0, 0.3))
            job.kill(f"inference-{2 * engine + chance.choice([0, 1])}")
            lost |= {2 * engine, 2 * engine + 1}
        again = come_again(job, chance, sorted(lost), ["--checksums", *FEW, *shadow, *flags], updates)
        codes = job.wait(60)
        for rank, name in [*((rank, f"inference-{rank}") for rank in range(job.inference)), *again]:
            versions = complete(job.digests(rank, name), expected.digests(1)[0])
            first = min(versions, default=1) if (rank, name) in again else 1
            if codes[name] == 0 and sorted(versions) != list(range(first, updates + 1)):
                complaints.append(f"{name} did {len(versions)} versions from {first} on")
            complaints += wrong_bytes(versions, rank, expected, known)
        may_fail = {*(f"inference-{rank}" for rank in lost), *(name for _, name in again)}
        failed = [name for name, code in codes.items() if code and name not in may_fail]
        if failed or complaints:
            complaints.append(f"job {number} ({flags + shadow + repeat}, without {sorted(lost)}): {failed} failed\n{job.said()}")
    return complaints


def test_sweep__engines_that_are_lost_leave_and_all_others_do_every_update(tmp_path, models):
    expected, known = jobs.expected(models["qwen2"], ENGINES, 20), {}
    for number in range(KILLS // 20):
        assert lose_engines(number, tmp_path / str(number), models["qwen2"], expected, known) == []
    assert not jobs.leftovers()


def lose_controllers(number, folder, model, expected, known):
    """One job that goes on when its controller is lost, one to three times, and another one takes it over; two in three lose an
    engine too, or a trainer, at any moment, which is started again when there is a controller. Complaints."""
    chance, updates = random.Random(SEED * 1000037 + number), 400
    flags, shadow = chance.choice(WAYS), chance.choice([[], ["--shadow"]])
    loses = [None, "inference-3", "trainer-1"][number % 3]
    options = ["--orphan", "60s", "--heartbeat", "100ms", "--lost-after", "1s", *(["--on-loss", "continue"] if loses else []),
               *chance.choice(DELTA)]
    complaints, again, moments = [], [], 1 if loses else chance.choice([1, 2, 3])
    with jobs.Job(folder, model, TRAIN, "engines=2,tp=2") as job:
        job.controller(*options, name="controller0")
        job.workers("--checksums", *FEW, *flags, updates=updates, trainer_flags=["--interval", "10ms"], inference_flags=shadow)
        while not job.processes["inference-0"].updates() and job.processes["controller0"].code is None:
            time.sleep(0.005)
        steps = [f"controller{turn}" for turn in range(moments)]
        if loses:
            steps.insert(chance.choice([0, 1]), loses)
        together = loses and chance.choice([False, True])  # as when a host is gone that had both
        for name in steps:
            time.sleep(0 if together and name != steps[0] else chance.uniform(0, 0.6))
            job.kill(name)
            if together:
                job.kill(loses)
            if name.startswith("controller"):
                job.processes[name].popen.wait()
                time.sleep(chance.choice([0, chance.uniform(0, 1.5)]))
                job.controller(*options, bind=job.address, name=f"controller{int(name[-1]) + 1}")
        for rank in (2, 3) if loses == "inference-3" else ():
            job.worker("inference", rank, "--checksums", *FEW, *shadow, *flags, updates=updates, name=f"again-{rank}")
            again.append((rank, f"again-{rank}"))
        if loses == "trainer-1":
            job.worker("trainer", 1, "--checksums", *FEW, "--interval", "10ms", *flags, updates=updates, name="again")
        codes = job.wait(60)
        for rank, name in [*((rank, f"inference-{rank}") for rank in range(2 if again else 4)), *again]:
            versions = complete(job.digests(rank, name), expected.digests(1)[0])
            first = min(versions, default=1) if again and rank > 1 else 1
            want = set(range(first, updates + 1))
            if loses == "trainer-1":  # they are given up until another trainer is here
                want -= set(range(updates - 100))
            if not want <= set(versions):
                complaints.append(f"{name} did {len(versions)} versions from {first} on")
            complaints += wrong_bytes(versions, rank, expected, known)
        may_fail = {f"controller{turn}" for turn in range(moments)} | ({"inference-2", "inference-3"} if again else {loses})
        failed = [name for name, code in codes.items() if code and name not in may_fail]
        if failed or complaints:
            complaints.append(f"job {number} ({flags + shadow}, {steps}): {failed} failed\n{job.said()}")
    return complaints


def test_sweep__controllers_that_are_lost_are_replaced_and_all_do_every_update(tmp_path, models):
    expected, known = jobs.expected(models["qwen2"], "engines=2,tp=2", 20), {}
    for number in range(max(3, KILLS // 40)):
        complaints = lose_controllers(number, tmp_path / str(number), models["qwen2"], expected, known)
        assert not complaints, "\n".join(complaints)
    assert not jobs.leftovers()


def lose_trainers(number, folder, model, infer, expected, known):
    """One job that goes on when its trainers are lost, one to three times, one in two where all hold all, and others take their
    places; complaints."""
    chance, updates = random.Random(SEED * 1000039 + number), 400
    flags, shadow, repeat = chance.choice(WAYS), chance.choice([[], ["--shadow"]]), chance.choice([[], ["--repeat"], ["--admit"]])
    train, complaints, names = chance.choice([TRAIN, "world=2,fsdp=2,source=sharded"]), [], ["trainer-0", "trainer-1"]
    with jobs.Job(folder, model, train, infer) as job:
        job.controller("--on-loss", "continue", "--commit", chance.choice(["engine", "rank", "job"]), *chance.choice(DELTA))
        job.workers("--checksums", *FEW, *flags, updates=updates, trainer_flags=["--interval", "10ms", *repeat], inference_flags=shadow)
        while not job.processes["inference-0"].updates() and job.processes["controller"].code is None:
            time.sleep(0.005)
        losses = chance.choice([1, 2, 3])
        for turn in range(losses):
            rank = chance.choice([0, 1])
            time.sleep(chance.uniform(0, 0.5))
            job.kill(names[rank])
            time.sleep(chance.choice([0, chance.uniform(0, 0.5)]))
            names[rank] = f"again{turn}-{rank}"
            job.worker("trainer", rank, "--checksums", *FEW, "--interval", "10ms", *repeat, *flags, updates=updates, name=names[rank])
        codes = job.wait(60)
        for rank in range(job.inference):
            versions = complete(job.digests(rank), expected.digests(1)[0])
            if max(versions) != updates or len(versions) < updates - 3 * losses:
                complaints.append(f"inference {rank} did {len(versions)} versions, up to {max(versions)}")
            complaints += wrong_bytes(versions, rank, expected, known)
        failed = [name for name, code in codes.items() if code and name in {"controller", *names, *(f"inference-{rank}" for rank in range(job.inference))}]
        if failed or complaints:
            complaints.append(f"job {number} ({train}, {flags + shadow + repeat}, {names}): {failed} failed\n{job.said()}")
    return complaints


def test_sweep__trainers_that_are_lost_are_replaced_and_no_rank_shows_a_mixture(tmp_path, models):
    infer = "engines=2,tp=2"
    expected, known = jobs.expected(models["qwen2"], infer, 20), {}
    for number in range(max(2, KILLS // 40)):
        complaints = lose_trainers(number, tmp_path / str(number), models["qwen2"], infer, expected, known)
        assert not complaints, "\n".join(complaints)
    assert not jobs.leftovers()


def command_line(path):
    try:
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def test_endure__the_others_go_on_whoever_is_killed_and_another_process_takes_the_place(tmp_path, capsys):
    count = max(8, KILLS // 8)
    endure.endure(tmp_path, count, SEED, endure.NETWORKS["list"])
    assert f"{count} losses, 0 wrong" in capsys.readouterr().out
