# SPDX-License-Identifier: Apache-2.0
"""Debian's prometheus and promtool, where they are: in PATH, or unpacked by ./bootstrap. WEFT_PROMETHEUS=require makes their
absence a failure."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

UNPACKED = pathlib.Path(__file__).resolve().parents[2] / "build" / "prometheus" / "usr" / "bin"


def program(name):
    found = shutil.which(name) or shutil.which(UNPACKED / name)
    if not found and os.environ.get("WEFT_PROMETHEUS") != "require":
        pytest.skip(f"no {name} (./bootstrap deps brings it)")
    assert found, f"WEFT_PROMETHEUS=require, and there is no {name}: ./bootstrap deps brings it"
    return found


def promtool(*arguments, text=None):
    done = subprocess.run([program("promtool"), *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr.strip(), done.stdout + done.stderr
    return done.stdout


def fetch(address, timeout=10):
    with urllib.request.urlopen(address, timeout=timeout) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Prometheus:
    """One that scrapes these ports of this host twice a second."""

    def __init__(self, folder, ports, rules):
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        targets = [f"127.0.0.1:{port}" for port in ports]
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "500ms", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "weft", "static_configs": [{"targets": targets}]}]}))
        self.log = open(folder / "prometheus.log", "w")
        self.process = subprocess.Popen(
            [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address={self.address}"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, "GOMAXPROCS": "1"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def ask(self, path, **values):
        answer = json.loads(fetch(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(values)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text):
        """[(labels, value)]; an expression that is none raises."""
        return [(row["metric"], float(row["value"][1])) for row in self.ask("query", query=text)["result"]]

    def until(self, text, wanted, patience=20):
        """The first answer that is as wanted."""
        deadline, found = time.monotonic() + patience, None
        while True:
            try:
                found = self.query(text)
                if wanted(found):
                    return found
            except OSError:  # it has not begun to listen
                pass
            assert time.monotonic() < deadline and self.process.poll() is None, \
                f"{text}: {found}\n" + (self.folder / "prometheus.log").read_text()[-2000:]
            time.sleep(0.1)
