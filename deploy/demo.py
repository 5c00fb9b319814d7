#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: a controller, trainers and inference ranks as separate processes move a whole model
several times. Afterwards every byte of every version on every inference rank is compared, by
digest, with a recomputation that shares no code with Weft: this file reads the checkpoint with
its own parser, makes each version's bytes with numpy and cuts the engine's parameters itself.

    ./bootstrap demo [--updates N] [--model NAME] [--train SPEC] [--infer SPEC] [--transport NAME]

Without --model, --train and --infer it moves three models: Qwen2.5-0.5B, also timed beside memcpy;
then the scaled-down Qwen3-30B-A3B (experts) and DeepSeek-V3 (latent attention, experts, fp8 blocks,
every trainer only a shard) of deploy/models, several GB each.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import engine_layout  # noqa: E402  the independent recomputation

START_TIMEOUT_S = 30
RUN_TIMEOUT_S = 600
DENSE = {"model": "Qwen2.5-0.5B", "train": "world=4,source=gathered", "infer": "engines=2,tp=2", "updates": 5}
# the folder inside of --out, and the job
BIG = (("moe", {"model": str(ROOT / "deploy/models/qwen3-30b-a3b-small"), "updates": 2,
                "train": "world=4,pp=2,source=gathered", "infer": "engines=1,tp=2,ep=2"}),
       ("mla", {"model": str(ROOT / "deploy/models/deepseek-v3-small"), "updates": 2,
                "train": "world=4,fsdp=4,source=sharded",
                "infer": "engines=1,tp=4,ep=4,dp=2,dp_lm_head=1,moe_dense_tp=1"}))


class DemoError(Exception):
    """One sentence for the terminal."""


def arguments():
    parser = argparse.ArgumentParser(description="move a whole model between processes and prove every byte")
    parser.add_argument("--bin", default="build/release", help="folder of the built programs")
    parser.add_argument("--out", default="build/demo", help="folder for the results")
    parser.add_argument("--model", help=f"one model only (default {DENSE['model']}, then those of deploy/models)")
    parser.add_argument("--train", help=f"its trainers (default {DENSE['train']})")
    parser.add_argument("--infer", help=f"its inference ranks (default {DENSE['infer']})")
    parser.add_argument("--policy", help="who sends what, as weft-controller --policy")
    parser.add_argument("--order", help="in which order, as weft-controller --order")
    parser.add_argument("--updates", type=int, help="of each model (default 5; 2 of those of deploy/models)")
    parser.add_argument("--transport", default="shm", help="shm, or verbs (`weft doctor` says whether it works here)")
    parser.add_argument("--nic", help="which NICs, as weft-worker --nic")
    parser.add_argument("--infer-nic", help="which NICs the inference ranks use (default: as --nic)")
    parser.add_argument("--checksums", action="store_true", help="sum every piece, verify at the target")
    args = parser.parse_args()
    args.infer_nic = args.infer_nic or args.nic
    return args


def spec(text):
    return dict(item.split("=", 1) for item in text.split(","))


def tail(path, lines=15):
    try:
        return "".join(open(path, errors="replace").readlines()[-lines:])
    except OSError:
        return ""


class Processes:
    """Children with their output in files; none outlives the demo."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, command):
        log = self.folder / f"{name}.log"
        with open(log, "w") as output:
            self.running[name] = (subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), log)

    def wait(self, deadline, on_tick):
        left = dict(self.running)
        while left:
            for name, (process, log) in list(left.items()):
                code = process.poll()
                if code is None:
                    continue
                if code != 0:
                    raise DemoError(f"{name} ended with code {code}; the end of {log}:\n{tail(log)}")
                del left[name]
            if time.monotonic() > deadline:
                raise DemoError(f"still running after {RUN_TIMEOUT_S} s: {', '.join(left)}")
            on_tick()
            time.sleep(0.1)

    def close(self):
        for process, _ in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


class Progress:
    """One line a version that every rank published, read from the workers' own output."""

    def __init__(self, folder, trainers, inference, updates):
        self.trainers = [folder / f"trainer-{rank}.log" for rank in range(trainers)]
        self.inference = [folder / f"inference-{rank}.log" for rank in range(inference)]
        self.updates, self.seconds = updates, []

    def tick(self):
        sent, received = ([update_lines(path) for path in paths] for paths in (self.trainers, self.inference))
        done = min(len(lines) for lines in sent + received)
        for index in range(len(self.seconds), done):
            seconds = max(transfer_seconds(lines[index]) for lines in sent)
            total = sum(lines[index]["bytes"] for lines in received)
            self.seconds.append(seconds)
            print(f"  version {index + 1} of {self.updates}: {total / 1e6:,.0f} MB published on {len(received)} inference"
                  f" ranks; the slowest trainer took {seconds:.3f} s", flush=True)


def transfer_seconds(record):
    """A trainer's time from the moment its targets accepted the version to its last signal."""
    return record["seconds"] - record["wait_seconds"]


def update_lines(path):
    """The update lines that a worker printed so far."""
    try:
        lines = open(path).read().splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.startswith('{"event":"update"') and line.endswith("}")]


def make_checkpoint(weft, model, folder):
    config = folder / "config.json"
    if config.exists() and subprocess.run([weft, "checkpoint", "verify", folder, "--model", model],
                                          capture_output=True).returncode == 0:
        print(f"checkpoint: {folder} is there")
        return
    print(f"checkpoint: making {model} in {folder}")
    if subprocess.run([weft, "checkpoint", "make", model, folder, "--force"]).returncode != 0:
        raise DemoError("weft checkpoint make failed (above)")


def start_controller(processes, bin_folder, out, args):
    port_file = out / "controller.port"
    port_file.unlink(missing_ok=True)
    processes.start("controller", [bin_folder / "weft-controller", "--job", "demo", "--bind", "tcp://127.0.0.1:0",
                                   "--port-file", port_file, "--train", args.train, "--infer", args.infer,
                                   "--dump", out / "routing.json",
                                   *(["--policy", args.policy] if args.policy else []),
                                   *(["--order", args.order] if args.order else [])])
    deadline = time.monotonic() + START_TIMEOUT_S
    process, log = processes.running["controller"]
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoError(f"the controller does not listen; the end of {log}:\n{tail(log)}")
        time.sleep(0.02)
    return f"tcp://127.0.0.1:{port_file.read_text().strip()}"


def start_workers(processes, bin_folder, out, args, controller, trainers, inference):
    common = [bin_folder / "weft-worker", "--controller", controller, "--job", "demo", "--model", args.model,
              "--train", args.train, "--infer", args.infer, "--updates", str(args.updates), "--json",
              "--transport", args.transport]
    if args.checksums:
        common.append("--checksums")
    trainer_nic, inference_nic = (["--nic", nic] if nic else [] for nic in (args.nic, args.infer_nic))
    for rank in range(trainers):
        processes.start(f"trainer-{rank}", [*common, *trainer_nic, "--role", "trainer", "--rank", str(rank),
                                            "--checkpoint", out / "checkpoint"])
    for rank in range(inference):
        processes.start(f"inference-{rank}", [*common, *inference_nic, "--role", "inference", "--rank", str(rank),
                                              "--digests", out / f"digests-{rank}.jsonl"])


def verify(args, out, inference):
    """Every version, every rank, every parameter, against the independent recomputation."""
    expected = engine_layout.Expected(out / "checkpoint", spec(args.infer))
    engine_ranks = int(spec(args.infer).get("tp", 1))
    got = {}
    for rank in range(inference):
        for line in open(out / f"digests-{rank}.jsonl"):
            record = json.loads(line)
            got[record["version"], rank, record["param"]] = (record["digest"], record["bytes"])
    verified = mismatches = 0
    for version in range(1, args.updates + 1):
        want = expected.digests(version)
        for rank in range(inference):
            for name, (digest, size) in want[rank % engine_ranks].items():
                found = got.pop((version, rank, name), None)
                if found == (digest, size):
                    verified += size
                else:
                    mismatches += 1
                    print(f"  MISMATCH: version {version}, inference {rank}, {name}: expected {digest}"
                          f" ({size} bytes), found {found}")
        print(f"  version {version}: recomputed and compared on {inference} ranks", flush=True)
    mismatches += len(got)
    for key in list(got)[:5]:
        print(f"  MISMATCH: nothing is expected for version, rank, parameter {key}")
    return verified, mismatches


def bandwidth(weft, args):
    """The same job in steady state beside memcpy: `weft bench update`."""
    nics = [word for flag, nic in (("--nic", args.nic), ("--infer-nic", args.infer_nic)) if nic for word in (flag, nic)]
    done = subprocess.run([weft, "bench", "update", "--model", args.model, "--train", args.train, "--infer",
                           args.infer, "--transport", args.transport, *nics, "--updates", "5", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise DemoError(f"weft bench update failed: {done.stderr.strip()}")
    rounds = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda r: r["ratio"])
    return rounds[len(rounds) // 2]


def report(args, out, seconds, verified, mismatches, middle):
    dump = json.load(open(out / "routing.json"))
    result = {
        "model": args.model, "transport": args.transport, "train": dump["train"], "infer": dump["infer"],
        "trainers": len(dump["trainers"]), "inference": len(dump["inference"]), "updates": args.updates,
        "bytes_per_update": dump["summary"]["bytes_total"], "zeroed_bytes": dump["summary"]["filled_bytes"],
        "bytes_verified": verified,
        "mismatches": mismatches, "seconds": seconds, "digest": dump["digest"],
    }
    if middle:
        result |= {"ratio_to_memcpy": middle["ratio"], "bytes_per_second": middle["bytes_per_second"],
                   "memcpy_bytes_per_second": middle["memcpy_bytes_per_second"]}
    temporary = out / "report.json.new"
    temporary.write_text(json.dumps(result, indent=2) + "\n")
    os.replace(temporary, out / "report.json")
    return result


def run(args, out, timed):
    bin_folder = pathlib.Path(args.bin)
    weft = bin_folder / "weft"
    if not weft.exists():
        raise DemoError(f"{weft} is not there: run ./bootstrap build")
    if args.updates < 1:
        raise DemoError(f"--updates is {args.updates}: give at least 1")
    infer = spec(args.infer)
    trainers, inference = int(spec(args.train).get("world", 1)), int(infer.get("engines", 1)) * int(infer.get("tp", 1))
    checkpoint = out / "checkpoint"
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("*.log"), *out.glob("digests-*.jsonl"), out / "report.json", out / "routing.json"]:
        old.unlink(missing_ok=True)
    make_checkpoint(weft, args.model, checkpoint)
    processes = Processes(out)
    try:
        print(f"update: 1 controller, {trainers} trainers, {inference} inference ranks, {args.updates} updates of"
              f" {args.model} over {args.transport}")
        controller = start_controller(processes, bin_folder, out, args)
        start_workers(processes, bin_folder, out, args, controller, trainers, inference)
        progress = Progress(out, trainers, inference, args.updates)
        processes.wait(time.monotonic() + RUN_TIMEOUT_S, progress.tick)
        progress.tick()
    finally:
        processes.close()
    if len(progress.seconds) != args.updates:
        raise DemoError(f"{len(progress.seconds)} of {args.updates} versions were published everywhere; logs in {out}")
    print("verify: every byte against an independent recomputation (numpy)")
    verified, mismatches = verify(args, out, inference)
    print("routing:")
    subprocess.run([weft, "route", "show", out / "routing.json"], check=True)
    middle = None
    if timed:
        print("bandwidth: the same job in steady state beside memcpy")
        middle = bandwidth(weft, args)
        print(f"  weft {middle['bytes_per_second'] / 1e9:.1f} GB/s, memcpy"
              f" {middle['memcpy_bytes_per_second'] / 1e9:.1f} GB/s, ratio {middle['ratio']:.2f} (median of 5 updates)")
    result = report(args, out, progress.seconds, verified, mismatches, middle)
    # padding without a source is compared too: the rank has zeroed it
    expected = (result["bytes_per_update"] + result["zeroed_bytes"]) * args.updates
    print(f"result: {verified:,} of {expected:,} bytes verified, {mismatches} mismatches; {out}/report.json, {out}/routing.json")
    if mismatches or verified != expected:
        raise DemoError("the bytes on the inference ranks are not those of the trainers")


def run_all(args):
    """The job that the arguments name or, when they name none, one of every kind."""
    out = pathlib.Path(args.out)
    given = {key: getattr(args, key) for key in DENSE if getattr(args, key) is not None}
    run(argparse.Namespace(**{**vars(args), **DENSE, **given}), out, True)
    if given.keys() <= {"updates"}:
        for folder, job in BIG:
            print()
            run(argparse.Namespace(**{**vars(args), **job, **given}), out / folder, False)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin = time.monotonic()
    try:
        run_all(arguments())
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    print(f"demo: done in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
