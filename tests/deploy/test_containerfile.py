# SPDX-License-Identifier: Apache-2.0
"""Containerfile agrees with docs/install.md, with bootstrap and with the manifests that run the image."""
import re

import pods
import pytest
import yaml

TEXT = (pods.ROOT / "Containerfile").read_text()
STEPS = [line for line in re.sub(r"\\\n\s*", "", TEXT).splitlines() if line and not line.startswith("#")]
STAGES = [[line for line in stage.splitlines() if line] for stage in re.split(r"(?m)^(?=FROM )", "\n".join(STEPS)) if stage.strip()]


def packages(stage):
    (line,) = [line for line in stage if "apt-get install" in line]
    return {word for word in line.partition("--no-install-recommends")[2].partition("&&")[0].split()}


def row(start):
    """The packages that docs/install.md names in that row of its table."""
    (line,) = [line for line in (pods.ROOT / "docs" / "install.md").read_text().splitlines() if line.startswith(f"| {start}")]
    return {word for names in re.findall(r"`([^`]+)`", line.split("|")[2]) for word in names.split()}


def test_build__has_what_the_document_says_and_what_a_toolkit_wants():
    assert packages(STAGES[0]) == row("to build |") | {"g++", "python3", "python3-pip"}


def test_image__has_what_programs_need_and_open_and_no_compiler():
    wanted = row("to run |") | {name for name in row("to run, where") if name.startswith(("lib", "ibverbs"))}
    assert packages(STAGES[-1]) == wanted


def test_user__is_a_number_that_the_manifests_name():
    (user,) = [line.split()[1] for line in STAGES[-1] if line.startswith("USER ")]
    settings, *_ = yaml.safe_load_all((pods.ROOT / "deploy/k8s/overlays/tcp/settings.yaml").read_text())
    pod = settings["security"]["pod"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}" and pod["runAsUser"] > 0 and pod["runAsNonRoot"]


def test_path__is_the_one_that_pods_are_replayed_with():
    (path,) = [line.partition("=")[2] for line in STAGES[-1] if line.startswith("ENV PATH=")]
    assert path == pods.IMAGE_PATH
    assert any("--prefix /opt/weft" in line for line in STAGES[0])


@pytest.mark.parametrize("line", STEPS)
def test_steps__are_of_few_kinds_and_fetch_nothing_but_packages(line):
    assert line.split()[0] in {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "ENV", "USER", "CMD"}
    assert not re.search(r"curl|wget|https?://|git clone", line)


def test_toolkit__is_bootstraps():
    assert re.search(r"(?m)^cuda_wheels=\"[^\"]+\"$", (pods.ROOT / "bootstrap").read_text())
