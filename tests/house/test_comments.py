# SPDX-License-Identifier: Apache-2.0
"""What comments say must be there: every file that one names, and no word that the code has given up."""
import fnmatch
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = {".c", ".h", ".py", ".sh", ".cmake"}
PROGRAMS = {"CMakeLists.txt", "bootstrap", "run", "init"}  # shell and CMake without a suffix
TRACKED = [ROOT / name for name in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                                                  check=True).stdout.splitlines()]
NAMES = {path.name for path in TRACKED}
SOURCES = [path for path in TRACKED if (path.suffix in SUFFIXES or path.name in PROGRAMS) and path.is_file()
           and not {"golden", "corpus"} & set(path.parts)]
C_TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
SCRIPT_COMMENTS = re.compile(r'#[^\n]*|"""(?:.|\n)*?"""')
# folder/name.ext; or a name alone, of code or of a document. Stars are as in a shell.
NAMED = re.compile(r"(?<![\w/.<\"$*-])((?:[\w.*-]+/)+[\w*-]+\.(?:c|h|py|md|json|sh|cmake|css|js|html)|[\w*-]+\.(?:c|h|md|py))(?![\w/])")
# not in this repository, and why
ELSEWHERE = {
    "linux/mempolicy.h": "the kernel's",
    "doc/xxhash_spec.md": "of the xxHash repository",
    "spec.md": "of the MessagePack repository",
    "models/deepseek_common/deepseek_weight_loader.py": "SGLang's",
    "models/glm4_moe.py": "SGLang's",
    "layers/quantization/kv_cache.py": "SGLang's",
    "layers/quantization/fp8_utils.py": "SGLang's",
    "page.c": "written by the build",
    "weft/_binding.py": "written by the build",
    "c.c": "written by the test",
}
# what was said of the code before it was a repository: not to be had
UNSEEN = re.compile(r"\bDESIGN\b|(?<![\w/])(?:\.\./)?(?:shared|reference)/\w")
# the word now, and the identifiers that said it otherwise
RETIRED = {
    "transform": r"MAKE_(?:VALUES|SCALES|PART_COUNT|FP8_MAX|AMAX_MIN|BLOCK_MAX|TEXT_BYTES)|make_(?:valid|equal|grain_rows|bytes|scales_box|possible|parse|part)|remake\w*|problem_made|pack_made|weft_make|weft_declare_made_piece",
    "path": r"HOW_[A-Z]+|route_how\w*|how_piece|how_bytes",
    "plan": r"book(?:_\w+)?",
    "replay": r"engine_make_again|verbs_again\w*|signal_again",
    "column, or column group": r"(?:pack|copy)_lanes?|pack_run_lanes|PACK_LANES_MAX",
    "slot, tag or payload": r"mailbox_letter|letter_?of\w*|update_words?",
    "copacked": r"pack_beside|parts_beside",
    "submit, in place, scratch": r"update_give|post_lying|kept_(?:region|bytes)",
    "probe": r"\w*endpoint_prove|peers_prove|shm_process_prove",
    "message": r"\w*sentence\w*",
    "strerror": r"weft_code_words|error_words",
}


def comments(path):
    """(line, text) of each comment."""
    text = path.read_text()
    for match in (C_TOKENS if path.suffix in {".c", ".h"} else SCRIPT_COMMENTS).finditer(text):
        if match.group()[0] != '"' or match.group().startswith('"""'):
            yield text.count("\n", 0, match.start()) + 1, match.group()


def is_there(name, path):
    """From the root, or from a folder on the way to the file; a name alone, anywhere."""
    if "/" not in name:
        return name in NAMES or "*" in name and bool(fnmatch.filter(NAMES, name))
    folders = [path.parent, *path.parent.parents]
    return any(any(folder.glob(name)) for folder in folders[:folders.index(ROOT) + 1])


def test_comments__name_files_that_exist():
    missing = [f"{path.relative_to(ROOT)}:{line}: {name}" for path in SOURCES for line, text in comments(path)
               for name in NAMED.findall(text) if name not in ELSEWHERE and not is_there(name, path)]
    assert missing == []


def test_comments__name_no_document_that_only_its_author_had():
    assert [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES if path != pathlib.Path(__file__).resolve()
            for line, text in comments(path) if UNSEEN.search(text)] == []


def test_elsewhere__is_what_comments_name():
    named = {name for path in SOURCES for _, text in comments(path) for name in NAMED.findall(text)}
    assert [name for name in ELSEWHERE if name not in named or name in NAMES] == []


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words__name_nothing(word):
    retired = re.compile(rf"\b(?:{RETIRED[word]})\b")
    found = {}
    for path in SOURCES:
        if path.suffix in {".c", ".h"}:
            names = retired.findall(C_TOKENS.sub(" ", path.read_text()))
            if names:
                found[str(path.relative_to(ROOT))] = sorted(set(names))
    assert found == {}, f"say {word}"
