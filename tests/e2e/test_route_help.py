# SPDX-License-Identifier: Apache-2.0
"""`--help` of every verb of `weft route`: it fits a terminal, and what it shows can be pasted."""
import subprocess

import job as jobs
import pytest

VERBS = ("plan", "show", "verify", "explain", "compare", "diff", "export", "order", "topology", "simulate")
JOB = ("--model", "Qwen2.5-0.5B", "--train", "world=4", "--infer", "engines=2,tp=2")


def example(text):
    """The command under "Example:", with the lines that its backslashes continue."""
    lines = iter(text.split("Example:\n", 1)[1].splitlines())
    command = [next(lines)]
    while command[-1].endswith("\\"):
        command.append(next(lines))
    return "\n".join(command)


@pytest.mark.parametrize("words", [(), ("route",)] + [("route", verb) for verb in VERBS], ids=" ".join)
def test_help__fits_80_columns(words):
    for line in jobs.weft(*words, "--help").stdout.splitlines():
        assert len(line) <= 80, line


@pytest.mark.parametrize("verb", VERBS)
def test_example__can_be_pasted(tmp_path, verb):
    for name in ("plan", "other"):
        jobs.weft("route", "plan", *JOB, "--output", tmp_path / f"{name}.json")
    command = example(jobs.weft("route", verb, "--help").stdout)
    assert f"weft route {verb} " in command
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True,
                          env={"PATH": f"{jobs.BIN}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert done.stdout or verb == "export"
