# SPDX-License-Identifier: Apache-2.0
"""Runs inside the machine: whole jobs over verbs, trainers on rxe0, inference ranks on rxe1.

    vm_job.py deliver [MODE ...]      one job a mode, every byte of every version compared
    vm_job.py sources                 trainers as Megatron cuts them, as the engine and finer
    vm_job.py mixed                   shm on one host and verbs to another in one job, the same
    vm_job.py slow                    one of four NICs becomes slow: `weft status` names it (two cables: rxe0 to rxe3)
    vm_job.py kills COUNT SEED        kill -9 at random points; who survives must say who died
    vm_job.py endure COUNT SEED       one process after the other is killed in a job that goes on, and started again
    vm_job.py commits UPDATES         microseconds of an update of a small model, --commit rank beside engine, in turns

Exits 0 when all was well; else the reasons are on stdout.
"""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import endure  # noqa: E402
import job as jobs  # noqa: E402

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
# 5.5 MB; small enough for a device that moves 30 MB/s
MODEL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
         "vocab_size": 2000}
WIDE = MODEL | {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}  # its rows are worth a write each
VERBS = ["--transport", "verbs", "--join-timeout", "120s", "--update-timeout", "120s"]
MODES = {  # flags of all, of trainers, of inference ranks, of the controller
    "weft-memory": ([], [], [], []),
    "own-memory": (["--checksums"], [], ["--own-memory"], []),
    "registered": ([], ["--register-sources"], ["--own-memory"], []),
    "shadow": ([], [], ["--shadow"], []),
    "hedge": ([], ["--register-sources"], [], ["--hedge", "20ms"]),  # where everybody is late
    "delta": (["--change-one-in", "20"], ["--register-sources"], ["--shadow"], ["--delta"]),
    "routed": (["--checksums"], ["--register-sources"], ["--own-memory"],
               ["--topology", "workers", "--policy", "balanced", "--order", "rounds"]),
}
# mock devices whose memory this device can register: what it reads and writes there is real
GPUS = "devices=2,order=late,touch=yes"
MODES.update({
    "gpu": (["--memory", "cuda", "--checksums"], [], [], []),
    "gpu-registered": (["--memory", "cuda"], ["--register-sources"], ["--own-memory"], []),
    "gpu-staged": (["--memory", "cuda", "--checksums"], ["--replica", "host"], ["--stage", "device"], []),
    "gpu-landed": (["--memory", "cuda", "--checksums"], [], ["--landing-bytes", "300K"], []),
})
MIXED = ["--transport", "auto", "--join-timeout", "120s", "--update-timeout", "120s", "--register-sources"]
VICTIMS = {"trainer-0": "trainer 0", "trainer-1": "trainer 1", "inference-0": "inference 0",
           "inference-1": "inference 1"}


def start(job, flags=(), trainer_flags=(), inference_flags=(), updates=3, env=None):
    job.workers(*VERBS, *flags, updates=updates, trainer_flags=["--nic", "rxe0", *trainer_flags],
                inference_flags=["--nic", "rxe1", *inference_flags], env=env)


def devices(mode):
    """nvidia-peermem, as it were: without, no NIC reaches a GPU's memory."""
    return {"WEFT_CUDA_MOCK": GPUS + ("" if mode == "gpu-landed" else ",peermem=yes")} if mode.startswith("gpu") else None


def port_bytes(device):
    """What the device sent, by its own count; soft devices count packets only."""
    counters = pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters")
    return int((counters / "sent_pkts").read_text())


def check_nics(folder, sent, most):
    """What trainers' metrics say of their NIC, of a job that is over: all that they sent, and signals; `most` times that."""
    row = re.compile(r'^weft_nic_(\w+)\{.*,nic="(.+)"\} (\S+)$', re.M)
    pages = [{(name, nic): float(value) for name, nic, value in row.findall((folder / f"t{rank}.prom").read_text())}
             for rank in range(2)]
    for page in pages:
        assert set(page) == {(name, "rxe0:1") for name in ("sent_bytes_total", "busy_seconds_total", "waiting_bytes")}, page
        assert page["busy_seconds_total", "rxe0:1"] > 0 and page["waiting_bytes", "rxe0:1"] == 0, page
    carried = sum(page["sent_bytes_total", "rxe0:1"] for page in pages)
    assert sent <= carried < most * sent, f"NICs have carried {carried} bytes, of {sent}"
    busy = sum(page["busy_seconds_total", "rxe0:1"] for page in pages)
    print(f"by the metrics: {carried:.0f} bytes in {busy:.2f} s of a busy NIC", flush=True)


def check_trace(folder, sent):
    """What the trainers' traces, merged, say of each write: its endpoint, and bytes as many as were sent."""
    jobs.weft("trace", "merge", *sorted(folder.glob("*.json")), "--output", folder / "merged")
    rows = json.loads((folder / "merged").read_text())["traceEvents"]
    lanes = {(row["pid"], row["tid"]): row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    carried = {}
    for row in rows:
        lane = lanes.get((row["pid"], row["tid"]), "")
        if row["name"] == "write" and lane.startswith("to inference"):
            carried[lane] = carried.get(lane, 0) + row["args"]["bytes"]
    assert sum(carried.values()) == sent, f"traces have {carried}, of {sent} bytes"
    assert {lane.split(" (")[0] for lane in carried} == {"to inference 0", "to inference 1"}, carried


def check_routed(folder, model):
    """The plan was made over the NICs that the workers reported, and is the one made from them offline."""
    live = (folder / "live.json").read_text()
    topology = json.loads(live)["topology"]
    assert [nic["name"] for host in topology["hosts"] for nic in host["nics"]] == ["rxe0:1", "rxe1:1"], topology
    assert all(nic["bytes_per_second"] > 0 for host in topology["hosts"] for nic in host["nics"]), topology
    for role, nic in (("trainers", "rxe0:1"), ("inference", "rxe1:1")):
        assert [list(rank["links"]) for rank in topology[role]] == [[nic], [nic]], topology
    (folder / "topology.json").write_text(json.dumps(topology))
    offline = jobs.weft("route", "plan", "--model", model, "--train", TRAIN, "--infer", INFER, "--memory", "process",
                        "--topology", folder / "topology.json", "--policy", "balanced", "--order", "rounds", "--json")
    assert live == offline.stdout
    print(f"routed: over {json.dumps(topology['hosts'])}", flush=True)


def deliver(folder, modes):
    model = jobs.make_model(folder, "qwen2", **MODEL)
    for mode in modes:
        flags, trainer_flags, inference_flags, controller_flags = MODES[mode]
        referee = jobs.expected(model, INFER, 20 if mode == "delta" else 1)
        before, began = port_bytes("rxe0"), time.monotonic()
        with jobs.Job(folder / mode, model, TRAIN, INFER) as job:
            traces = folder / mode / "traces"
            traces.mkdir(parents=True)
            job.controller("--lost-after", "30s", "--dump", folder / mode / "live.json", "--trace", traces / "%r.json",
                           *controller_flags)
            start(job, ["--verify", "--trace", traces / "%r.json", *flags],
                  [*trainer_flags, "--metrics-file", folder / mode / "%r.prom"], inference_flags, env=devices(mode))
            job.succeed(240)
            took = time.monotonic() - began
            job.verify(referee, [1, 2, 3])
            total = sum(update["bytes"] for rank in range(2)
                        for update in job.processes[f"inference-{rank}"].updates())
            way = [line for line in job.processes["trainer-0"].stderr.splitlines() if "direct" in line]
        if mode == "routed":
            check_routed(folder / mode, model)
        packets = port_bytes("rxe0") - before
        if mode == "delta":  # the first version, and an eighth of the others
            saved = sum(update["bytes_saved"] for rank in range(2) for update in job.processes[f"trainer-{rank}"].updates())
            assert 0.85 * 2 / 3 < saved / total < 2 / 3, f"{mode}: {saved} of {total} bytes were not sent"
            total -= saved
        assert packets * 1024 >= total, f"{mode}: {packets} packets cannot carry {total} bytes"
        if mode != "hedge":  # second senders have no lanes
            check_trace(traces, total)
        check_nics(folder / mode, total, 2.1 if mode == "hedge" else 1.05)  # where second senders send all once more
        print(f"{mode}: {total} bytes delivered and compared, {packets} packets, {took:.0f} s; {way[-1].split(': ')[-1]}",
              flush=True)


def sources(folder):
    """Nothing is gathered: from where it lies and out of the ring, or, cut finer than the engine, by way of a window."""
    model = jobs.make_model(folder, "qwen2", **WIDE)
    for name, train, infer, flags in (
            ("megatron", "world=4,source=megatron,tp=2,pp=2", "engines=1,tp=2", ["--register-sources"]),
            ("finer", "world=2,source=megatron,tp=2", "engines=1,tp=1", [])):
        with jobs.Job(folder / name, model, train, infer) as job:
            job.controller("--lost-after", "30s")
            start(job, ["--verify", "--checksums"], flags)
            job.succeed(240)
            job.verify(jobs.expected(model, infer), [1, 2, 3])
            way = [line for line in job.processes["trainer-0"].stderr.splitlines() if "direct" in line]
        print(f"{name}: delivered and compared; {way[-1].split(': ')[-1]}", flush=True)


def mixed(folder):
    """Trainers and one inference rank on one host, the other rank elsewhere: shm here, verbs there."""
    model = jobs.make_model(folder, "qwen2", **MODEL)
    with jobs.Job(folder / "mixed", model, TRAIN, INFER) as job:
        job.hosts = {"inference-1": "right"}
        job.controller("--lost-after", "30s", "--topology", "workers", "--dump", job.folder / "live.json")
        for rank in range(2):
            job.worker("trainer", rank, *MIXED, "--nic", "rxe0", "--checksums", updates=3)
            job.worker("inference", rank, *MIXED[:-1], "--nic", f"rxe{rank}", "--verify", "--checksums", updates=3)
        before = port_bytes("rxe0")
        job.succeed(240)
        packets = port_bytes("rxe0") - before
        job.verify(jobs.expected(model, INFER), [1, 2, 3])
        total = [sum(update["bytes"] for update in job.processes[f"inference-{rank}"].updates()) for rank in range(2)]
        assert packets * 1024 >= total[1], f"{packets} packets cannot carry {total[1]} bytes"
        live = json.loads((job.folder / "live.json").read_text())
        ways = {(route["inference"], route["transport"]): 0 for route in live["routes"]}
        assert set(ways) == {(0, "shm"), (1, "verbs")}, ways
        how = {(route["transport"], piece.get("how", route["how"])) for route in live["routes"] for piece in route["pieces"]}
        assert how == {("shm", "direct"), ("shm", "mapped"), ("verbs", "direct"), ("verbs", "replica")}, how
        (job.folder / "topology.json").write_text(json.dumps(live["topology"]))
        offline = jobs.weft("route", "plan", "--model", model, "--train", TRAIN, "--infer", INFER, "--topology",
                            job.folder / "topology.json", "--transport", "auto", "--json")
        assert (job.folder / "live.json").read_text() == offline.stdout
        print(f"mixed: {total[0]} bytes by shm and {total[1]} by verbs delivered and compared, {packets} packets; "
              f"{job.processes['trainer-0'].stderr.splitlines()[-1].split(': ')[-1]}", flush=True)


def look(job):
    """(seconds, what `weft status` says): two looks of its own, half a second apart."""
    began = time.monotonic()
    said = json.loads(jobs.weft("status", "--controller", job.address, "--json").stdout)
    return time.monotonic() - began, said


def slow(folder):
    """A trainer on each of two cables. One becomes a hundredth as fast: the seconds until its NIC is named, and nobody else but its
    trainer. A machine that others starve has each second of its own last longer: by what a look took before."""
    model = jobs.make_model(folder, "qwen2", **MODEL)
    with jobs.Job(folder / "job", model, TRAIN, INFER) as job:
        job.controller("--lost-after", "60s", "--update-timeout", "120s")
        for rank in range(2):
            job.worker("trainer", rank, *VERBS, "--register-sources", "--nic", f"rxe{2 * rank}", updates=100000)
            job.worker("inference", rank, *VERBS, "--nic", "rxe1,rxe3", updates=100000)
        carried, quiet = {}, []
        while min(carried.get("rxe0:1", 0), carried.get("rxe2:1", 0)) < 30_000_000:
            seconds, seen = look(job)
            quiet.append(seconds)
            carried = {nic["name"]: nic["bytes"] for member in seen["members"] for nic in member.get("nics", [])}
        subprocess.run(["tc", "qdisc", "add", "dev", "veth2", "root", "netem", "rate", "2mbit"], check=True)
        began, looks, found = time.monotonic(), 0, []
        while not any("NIC " in one["text"] for one in found) and time.monotonic() - began < 60:
            found, looks = [one for one in look(job)[1]["why"] if one["fault"]], looks + 1
        took = time.monotonic() - began
        print(json.dumps({"slow_seconds": took, "looks": looks, "quiet_look_seconds": statistics.median(quiet), "found": found}),
              flush=True)
        assert [one["text"][:24] for one in found if "NIC " in one["text"]] == ["NIC rxe2:1 of trainer 1 "], found
        # who is silent for more than three heartbeats may be a victim of this machine; nobody else may be blamed
        others = [one for one in found if (one["role"], one["rank"]) != ("trainer", 1) and "is silent for" not in one["text"]]
        assert others == [], others


def one_kill(folder, model, chance):
    """A complaint, or None; and whether anything was published before."""
    running = chance.random() < 0.7  # else: somewhere on the way there
    victim, delay = chance.choice(list(VICTIMS)), chance.uniform(0.0, 2.0 if running else 6.0)
    flags = chance.choice([[], ["--checksums"]])
    inference = chance.choice([[], ["--own-memory"], ["--shadow"]])
    what = f"{victim} {delay:.2f} s after {'an update' if running else 'the start'}, {flags + inference}"
    with jobs.Job(folder, model, TRAIN, INFER) as job:
        job.controller("--heartbeat", "500ms", "--lost-after", "5s", "--join-timeout", "30s")
        start(job, flags, inference_flags=inference, updates=100000)
        deadline = time.monotonic() + 60
        while running and not job.processes["inference-0"].updates() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(delay)
        job.kill(victim)
        job.processes[victim].popen.wait()
        began = time.monotonic()
        try:
            job.wait(90)
        except AssertionError as error:
            return f"{what}: {error}", 0, 0
        took = time.monotonic() - began
        for name, process in job.processes.items():
            if name == victim:
                continue
            if process.code != 75:
                return f"{what}: {name} ended with {process.code}: {process.stderr}", took, 0
            if VICTIMS[victim] not in process.stderr.splitlines()[-1]:
                return f"{what}: {name} does not name it: {process.stderr}", took, 0
        published = sum(len(job.processes[f"inference-{rank}"].updates()) for rank in range(2))
    return None, took, published


def a_new_job_works(folder, model, referee):
    with jobs.Job(folder, model, TRAIN, INFER) as job:
        job.controller("--lost-after", "30s")
        start(job, ["--verify"], updates=1)
        job.succeed(120)
        job.verify(referee, [1])


def kills(folder, count, seed):
    model = jobs.make_model(folder, "qwen2")
    referee = jobs.expected(model, INFER)
    chance, complaints, longest, published = random.Random(seed), [], 0, 0
    for number in range(count):
        complaint, took, versions = one_kill(folder / f"kill-{number}", model, chance)
        longest, published = max(longest, took), published + (versions > 0)
        print(f"kill {number}: {complaint or f'{took:.1f} s, {versions} published before'}", flush=True)
        if complaint:
            complaints.append(complaint)
        if number % 10 == 9 or number == count - 1:
            a_new_job_works(folder / f"after-{number}", model, referee)
    print(f"{count} kills, {published} after something was published; survivors took at most {longest:.1f} s;"
          f" {len(complaints)} complaints", flush=True)
    return complaints


def commits(folder, updates):
    """One trainer, an engine of tp=2 on another NIC: what an inference rank's wait takes, the median."""
    model = jobs.make_model(folder, "qwen2", hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=8,
                            num_key_value_heads=8, vocab_size=128)
    seen = {"rank": [], "engine": []}
    for turn in range(5):
        for commit, medians in seen.items():
            with jobs.Job(folder / f"{commit}-{turn}", model, "world=1,source=gathered", "engines=1,tp=2") as job:
                job.controller("--commit", commit, "--lost-after", "30s")
                start(job, inference_flags=["--shadow"], updates=updates)
                job.succeed(240)
                medians.append(statistics.median(update["seconds"] * 1e6 for rank in range(2)
                                                 for update in job.processes[f"inference-{rank}"].updates()[5:]))
        print(json.dumps({"turn": turn, **{f"{commit}_us": round(medians[-1]) for commit, medians in seen.items()}}), flush=True)
    rank, engine = (statistics.median(medians) for medians in seen.values())
    print(json.dumps({"bench": "commit over verbs", "rank_us": rank, "engine_us": engine, "ratio": engine / rank}), flush=True)


def main():
    # a second a try: an emulated machine under load answers late, and this device does not survive
    # what it repeats in the middle of a message
    os.environ.setdefault("WEFT_IB_TIMEOUT", "18")
    os.environ["WEFT_LOG"] = "info"
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "deliver":
            deliver(pathlib.Path(folder), sys.argv[2:] or list(MODES))
            return 0
        if sys.argv[1] == "sources":
            sources(pathlib.Path(folder))
            return 0
        if sys.argv[1] == "mixed":
            mixed(pathlib.Path(folder))
            return 0
        if sys.argv[1] == "slow":
            slow(pathlib.Path(folder))
            return 0
        if sys.argv[1] == "endure":
            endure.endure(pathlib.Path(folder), int(sys.argv[2]), int(sys.argv[3]),
                          endure.Network(VERBS, ["--nic", "rxe0"], ["--nic", "rxe1"]))
            return 0
        if sys.argv[1] == "commits":
            commits(pathlib.Path(folder), int(sys.argv[2]))
            return 0
        return 1 if kills(pathlib.Path(folder), int(sys.argv[2]), int(sys.argv[3])) else 0


if __name__ == "__main__":
    sys.exit(main())
