# SPDX-License-Identifier: Apache-2.0
"""The rules for what is no C: the page of the HTML report, schemas, scenarios, and what the
documents name."""
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = sorted((ROOT / "routing" / "report" / "page").iterdir())
DATA = [*sorted((ROOT / "routing" / "report" / "schema").iterdir()), *sorted((ROOT / "model" / "schema").iterdir()),
        *sorted((ROOT / "routing" / "lab" / "scenarios").iterdir())]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "examples").glob("*/README.md"))]
FOLDERS = "base cli cmake controller deploy docs examples job metrics model pack python routing tests trace transport wire worker".split()
SVG = "'http://www.w3.org/2000/svg'"  # a name, not an address


def test_page__parts_are_licensed_short_and_built_in():
    recipe = (ROOT / "cmake" / "page.cmake").read_text()
    parts = re.search(r"foreach\(part ([a-z ]+)\)[^\n]*\n[^\n]*/\$\{part\}\.js", recipe).group(1).split()
    assert sorted(path.stem for path in PAGE if path.suffix == ".js") == sorted(parts)
    for path in PAGE:
        text = path.read_text()
        assert "SPDX-License-Identifier: Apache-2.0" in text[:120], path.name
        assert len(text.splitlines()) <= 700, path.name


@pytest.mark.parametrize("path", PAGE, ids=lambda path: path.name)
def test_page__asks_nobody_and_takes_no_text_for_markup(path):
    text = path.read_text().replace(SVG, "")
    calls = r"\b(?:fetch|eval|import|importScripts|Function|XMLHttpRequest|WebSocket|EventSource)\s*\("
    words = r"https?:|innerHTML|outerHTML|insertAdjacentHTML|document\.write|@import|url\((?!#)"
    assert re.findall(f"{calls}|{words}", text) == []


def test_schemas__name_the_text_they_are_for():
    for path in DATA:
        if path.parent.name == "schema":
            name, version = re.fullmatch(r"weft\.(\w+)-(\d+)\.schema\.json", path.name).groups()
            assert json.loads(path.read_text())["properties"]["schema"]["const"] == f"weft.{name}/{version}"


def test_scenarios__are_the_eight_published_ones():
    scenarios = json.loads((ROOT / "routing/lab/scenarios/published.json").read_text())["scenarios"]
    assert len({row["name"] for row in scenarios}) == len(scenarios) == 8
    page = (ROOT / "docs/simulator.md").read_text()
    assert [row["name"] for row in scenarios if row["name"] not in page] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents__name_files_that_exist(path):
    text = path.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []
    names = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]+)`", text)
    assert [name for name in names if not list(ROOT.glob(name))] == []
