# SPDX-License-Identifier: Apache-2.0
"""Every program and every command has a manual page, made of what it says to --help; mandoc finds nothing to mend in them."""
import gzip
import re
import subprocess

import help_text
import manual
import pytest
from conftest import BIN, ROOT, run

WORDS = [["weft"], *[command.words for command in help_text.read_all(BIN)]]


def page(made, words):
    return gzip.decompress((made / "man1" / f"{'-'.join(words)}.1.gz").read_bytes()).decode()


def shown(text):
    """As a reader sees it, a word a word."""
    said = run("mandoc", "-T", "utf8", "-O", "width=500", input=text)
    return re.sub(r".\x08", "", said)


def said(words, **environment):
    return subprocess.run([BIN / words[0], *words[1:], "--help"], env={"LC_ALL": "C", **environment}, capture_output=True,
                          text=True, check=True).stdout


def test_pages__are_those_of_the_programs_and_of_each_command(made):
    assert sorted(path.name for path in (made / "man1").iterdir()) == sorted(f"{'-'.join(words)}.1.gz" for words in WORDS)
    rows = re.findall(r"^  ([a-z]+) +([a-z-]*)  +\S", said(["weft"]), re.M)
    verbs = [words[1:] for words in WORDS if words[0] == "weft" and len(words) > 1]
    assert sorted(verbs) == sorted(list(filter(None, row)) for row in rows)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_page__has_every_option_and_all_words_of_its_help(made, words):
    text = shown(page(made, words))
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", said(words)))
    assert flags and flags - set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) == set()
    if words != ["weft"]:  # whose list of commands is set another way
        plain = re.sub(r"\s+", "", text).lower()  # where lines end is nobody's word
        for line in said(words, ARGP_HELP_FMT="rmargin=9999").splitlines()[1:]:  # the first is the usage
            if not re.match(r"  [a-z-]+: |  or: ", line):
                wanted = re.sub(r"\s+", "", re.sub(r"^ +(?:-\S, )?(?:-\S|--\S+) ", "", line)).lower().rstrip(":")
                assert wanted in plain, f"the page lacks: {line}"


def test_page__a_flag_that_it_lacks_is_found(made):
    """The check above can fail."""
    text = page(made, ["weft", "route", "plan"]).replace("\\-\\-sessions\\-max", "")
    assert "--sessions-max" not in shown(text) and "--sessions-max" in said(["weft", "route", "plan"])


def test_pages__have_nothing_that_mandoc_would_mend(made, tmp_path):
    for path in (made / "man1").iterdir():
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    assert run("mandoc", "-T", "lint", "-W", "warning", *sorted(tmp_path.iterdir())) == ""


def test_mandoc__would_find_what_is_wrong(tmp_path):
    (tmp_path / "wrong.1").write_text(".TH WRONG 1\n.SH NAME\nwrong \\- a page\n.XX\n")
    assert "unknown macro" in run("mandoc", "-T", "lint", "-W", "warning", tmp_path / "wrong.1", code=3)


def test_overview__leads_to_the_page_of_every_command(made):
    text = shown(page(made, ["weft"]))
    assert [words for words in WORDS if f"{'-'.join(words)}(1)" not in text] == [["weft"]]


def test_pages__name_pages_that_exist(made):
    for words in WORDS:
        names = re.findall(r"(weft[a-z-]*)\(1\)", shown(page(made, words)))
        assert set(names) - {"-".join(words) for words in WORDS} == set()


def test_pages__that_name_a_document_say_where_documents_lie_and_it_is_one(made):
    named = 0
    for words in WORDS:
        text = shown(page(made, words))
        documents = set(re.findall(r"docs/[\w-]+\.md", text))
        assert [name for name in documents if not (ROOT / name).exists()] == []
        assert ("share/doc/weft" in text) == bool(documents), words
        named += len(documents)
    assert named > 20


def test_pages__are_the_same_bytes_again_with_the_date_of_SOURCE_DATE_EPOCH(tmp_path):
    for name in ("one", "two"):
        run(ROOT / "deploy/package/manual.py", BIN, "1.2.3", "Moves weights", tmp_path / name, env={"SOURCE_DATE_EPOCH": "86400"})
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files and all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)
    assert '.TH WEFT 1 1970-01-02 "Weft 1.2.3" "Weft"' in gzip.decompress((tmp_path / "one" / "weft.1.gz").read_bytes()).decode()


def test_roff__takes_no_text_for_a_request_and_no_hyphen_for_another():
    assert manual.roff(".so --a\\b\n'it's") == "\\&.so \\-\\-a\\eb\n\\&'it's"


@pytest.mark.parametrize("text, why", [
    ("Usage: weft x [OPTION...]\nDoes.\n\n      --a      first\nstray\n", "the line 'stray' among options is none"),
    ("usage of weft x\n", "begins with 'usage of weft x'"),
    ("Usage: weft x [OPTION...]\nDoes.\n\n      --a      first\n", "shows no option --help"),
])
def test_help__that_is_in_another_form_is_an_error_that_says_where(text, why):
    with pytest.raises(help_text.Unreadable, match=why):
        help_text.parse(["weft", "x"], "does", text)


def test_programs__that_are_not_there_are_an_error_that_says_what_to_do(tmp_path):
    command = [ROOT / "deploy/package/manual.py", tmp_path, "1", "Moves", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "weft --help cannot be run" in done.stderr and "build weft first" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text, words", [
    ("who sends: greedy (default), hash, lpt", ["greedy", "hash", "lpt"]),
    ("where: host (default), cuda (a GPU: of the rank) or cuda:N; by role", ["host", "cuda"]),
    ("one of: json, csv, or html", ["json", "csv", "html"]),
    ("engine (default), those of one engine; job, all; rank, none", []),
    ("write to FILE", []),
])
def test_values__are_words_that_a_text_lists_and_nothing_else(text, words):
    assert help_text.listed_words(text) == words
