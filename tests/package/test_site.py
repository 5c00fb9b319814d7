# SPDX-License-Identifier: Apache-2.0
"""The site: every link and every anchor leads somewhere, pages ask no other host, and they say what CommonMark says."""
import html.parser
import json
import re
import shutil
import subprocess
import urllib.parse

import pytest
from conftest import ROOT, run

MAKERS = ROOT / "build/makers/bin"
SITE = ROOT / "deploy/package/site.py"
# what a page is made of, by CommonMark's own reader
READ = """
import json, pathlib, sys
from markdown_it import MarkdownIt
reader = MarkdownIt("commonmark").enable("table")
print(json.dumps({name: reader.render(pathlib.Path(name).read_text()) for name in sys.argv[1:]}))
"""
COUNTED = "li ul ol table tr td pre h1 h2 h3 code strong em a img".split()


class Page(html.parser.HTMLParser):
    """The links of a page, what it loads, and the names that links may end in."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        elif tag in {"img", "script", "iframe"} and attributes.get("src"):
            self.loads.append(attributes["src"])
        elif tag == "link" and attributes.get("href"):
            self.loads.append(attributes["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    run(SITE, ROOT, out, MAKERS / "mkdocs")
    return out / "html"


def test_site__has_every_document_and_every_example(site):
    sources = [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    for path in sources:
        name = "index.html" if path.name == "README.md" else f"{path.stem}.html"
        assert (site / path.relative_to(ROOT).with_name(name)).exists(), path
    assert (site / "index.html").exists() and (site / "docs/report.png").exists()


def test_links__lead_to_files_and_anchors_that_exist(site):
    """A second opinion: of the pages as they are, by no code of MkDocs."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    wrong, checked = [], 0
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":  # that page is for a site's root
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].names if target in pages else set()
            checked += 1
            if not target.exists() or (parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in known):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == [] and checked > 1000


def test_pages__ask_no_other_host(site):
    assert [f"{path.name}: {load}" for path in site.rglob("*.html") for load in Page(path.read_text()).loads if "//" in load] == []


def test_pages__are_made_of_what_CommonMark_reads(site):
    """Lists, tables and code, counted: readers of the repository and of the site see the same."""
    documents = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")]
    names = ["CHANGELOG.md", "README.md", "CONTRIBUTING.md", *documents]
    read = json.loads(run(MAKERS / "python", "-c", READ, *names, cwd=ROOT))
    differ = []
    for name, text in read.items():
        page = (site / name).with_name("index.html" if name == "README.md" else f"{name.rpartition('/')[2][:-3]}.html").read_text()
        body = page.partition('itemprop="articleBody"')[2].partition("<footer")[0]
        counts = [{tag: len(re.findall(rf"<{tag}[ >]", one)) for tag in COUNTED} for one in (text, body)]
        differ += [f"{name}: {counts[0][tag]} <{tag}> by CommonMark, {counts[1][tag]} in the site" for tag in COUNTED
                   if counts[0][tag] != counts[1][tag]]
    assert differ == [], "an empty line before a list, and four spaces before one within another, are read the same by both"


@pytest.mark.parametrize("wrong, why", [
    ("[gone](gone.md)", "gone.md"),
    ("[nowhere](install.md#no-such-heading)", "no-such-heading"),
    ("[out](../worker/api/weft.h)", "worker/api/weft.h"),
])
def test_link__that_leads_nowhere_ends_it(tmp_path, wrong, why):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, source / name)
    (source / "docs/memory.md").write_text(f"# Memory\n\n{wrong}\n")
    done = subprocess.run([SITE, source, tmp_path / "out", MAKERS / "mkdocs"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and why in done.stderr and "docs/memory.md" in done.stderr


def test_site__of_a_folder_that_is_no_source_says_what_is_missing(tmp_path):
    done = subprocess.run([SITE, tmp_path, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has no README.md, CHANGELOG.md" in done.stderr
