# SPDX-License-Identifier: Apache-2.0
"""A whole real SGLang server on a machine without a GPU, for tests: launch_server as a user runs it, its plug-in found by its entry
point in a folder as an installed wheel has it.

    WEFT_ENGINES_PYTHON   an interpreter with torch and what SGLang needs
    WEFT_SGLANG           releases, apart by blanks, each as PYTHONPATH has it: the unpacked wheel, before it older packages that
                          it wants
"""
import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("WEFT_ENGINES_PYTHON", "")
RELEASES = os.environ.get("WEFT_SGLANG", "").split()
WEFT = pathlib.Path(os.environ.get("WEFT_PYTHON_PACKAGE", HERE.parents[1] / "python"))
UP_S = 400


def version_of(release):
    for folder in release.split(":"):
        found = next(pathlib.Path(folder).glob("sglang-*.dist-info"), None)
        if found is not None:
            return found.name.removeprefix("sglang-").removesuffix(".dist-info")
    raise AssertionError(f"no SGLang in {release}")


def is_old(release):
    """Of the generation whose scheduler has a mixin for weights, and which wants its kernels anywhere."""
    return tuple(map(int, re.findall(r"\d+", version_of(release))[:3])) < (0, 5, 16)


def site_with_plug_in(folder):
    made = folder / "installed" / "weft-0.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: weft\nVersion: 0\n")
    (made / "entry_points.txt").write_text("[sglang.srt.plugins]\nweft = weft.sglang:register\n")
    return made.parent


def environment(release, *before):
    sites = [*before, HERE / "site", *([HERE / "site_without_kernels"] if is_old(release) else [])]
    return {**os.environ, "PYTHONPATH": ":".join([*map(str, sites), release, str(WEFT)]), "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}


@contextlib.contextmanager
def server(release, model, folder, tp=1):
    """(url, log file)"""
    port = free_port()
    log, url = folder / "server.log", f"http://127.0.0.1:{port}"
    options = ["--model-path", str(model), "--port", str(port), "--tp-size", str(tp), "--device", "cpu", "--dtype", "bfloat16",
               "--skip-tokenizer-init", "--attention-backend", "torch_native", "--max-total-tokens", "2048",
               "--disable-radix-cache", "--disable-overlap-schedule", "--skip-server-warmup", "--disable-cuda-graph",
               *(["--disable-piecewise-cuda-graph"] if is_old(release) else [])]
    with open(log, "w") as file:
        process = subprocess.Popen([PYTHON, "-m", "sglang.launch_server", *options], stdout=file, stderr=subprocess.STDOUT,
                                   env={**environment(release, site_with_plug_in(folder)),
                                        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(map(str, range(tp)))}, start_new_session=True)
    try:
        deadline = time.monotonic() + UP_S
        while not answers(url):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"no server within {UP_S} s: {log.read_text()[-4000:]}"
            time.sleep(0.5)
        yield url, log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its session: schedulers and detokenizer too
        process.wait(30)


def free_port():
    """Low: older releases count others up from it."""
    while True:
        with socket.socket() as free:
            port = random.randrange(20000, 32000)
            with contextlib.suppress(OSError):
                free.bind(("127.0.0.1", port))
                return port


def answers(url):
    try:
        with urllib.request.urlopen(f"{url}/model_info", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
