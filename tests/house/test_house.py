# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/architecture.md that a machine can check: who includes whom, where foreign
headers live, headers that stand alone, the exported symbols, the size of files."""
import json
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
# weft-worker is a host program: it sees the installed headers and libc only
PROGRAM = ROOT / "worker" / "program"
# they lie in one folder, wherever that is, so they name each other without it
INSTALLED = [ROOT / "worker" / "api" / name for name in ("weft.h", "weft_base.h", "weft_play.h")]

# room: the rooms whose headers it may name, beside its own. A room is the longest prefix of a path.
DATA = {"base", "job"}
ROUTING = {"routing/plan", "routing/report", "routing/lab"}
ROOMS = {
    "base": set(),
    "metrics": {"base"},
    "trace": {"base"},
    "job": {"base"},
    "trust": {"base"},
    "wire": DATA,
    "model": DATA,
    "pack": DATA,
    "routing/plan": DATA | {"model"},
    "routing/report": DATA | {"model", "routing/plan"},
    "routing/lab": DATA | {"model", "routing/plan", "routing/report"},
    "transport": DATA,
    "controller": DATA | {"metrics", "trace", "trust", "wire", "routing/plan", "routing/report"},
    "worker/replica": {"base"},
    "worker/control": DATA | {"metrics", "trace", "trust", "wire", "transport", "worker/launch"},
    "worker/device": DATA | {"pack", "transport"},
    "worker/epoch": DATA | {"wire", "pack", "transport", "worker/control", "worker/device", "worker/replica"},
    "worker/update": DATA | {"trace", "wire", "pack", "transport", "worker/control", "worker/device", "worker/epoch",
                             "worker/replica"},
    "worker/referee": DATA | {"model", "pack", "transport", "worker/epoch", "worker/update"},
    "worker/launch": DATA | {"trust", "wire", "worker/api"},  # weft_launch_*: entry points too
    "worker/api": DATA | {"metrics", "trace", "trust", "wire", "model", "transport", "worker/control", "worker/device", "worker/epoch",
                          "worker/launch", "worker/referee", "worker/update"},
    "worker/program": set(),  # weft.h alone: a rule of its own
    "cli": DATA | {"trace", "trust", "wire", "model", "pack", "transport", "worker/api", "worker/control", "worker/referee"} | ROUTING,
}
FOLDERS = sorted({room.split("/")[0] for room in ROOMS})
PUBLIC = {"worker/api/weft.h"}  # to be seen from every room of worker/
# the only headers of routing/ that worker/ may see: the table, not the planner
WORKER_ROUTING = {"routing/plan/table.h", "routing/plan/path.h"}
# within controller/: who is here and what was planned see the worker that both hold, not each other
LIFETIMES = {"membership": {"membership", "worker"}, "epoch": {"epoch", "known", "worker"}, "known": {"known"}, "worker": {"worker"}}
FOREIGN = {
    r"zmq\.h": {"cli/socket.c", "controller/channel.c", "controller/connections.c", "trust/curve.c", "worker/control/connection.c",
                 "worker/control/dealer.c"},
    r"sodium\.h": {"base/hash.c", "trust/"},
    r"msgpack.*\.h": "wire/",
    r"infiniband/.*": "transport/verbs/",
    r"rdma/rdma_cma\.h": "transport/verbs/",
    r"rdma/(fabric|fi_.*)\.h": "transport/ofi/",
    r"hwloc.*": "transport/verbs/",
    r"cuda.*\.h": "transport/cuda/",
    r"xxhash\.h": {"job/digest.c"},
    r"microhttpd\.h": {"metrics/serve.c"},
    r"jansson\.h": {"model/", "routing/", "cli/"},
}


def sources(suffixes=(".c", ".h")):
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def includes(path):
    for line in path.read_text().splitlines():
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if match:
            yield match.group(1), match.group(2)


def room_of(name):
    """The room of a path from the root, or None."""
    found = [room for room in ROOMS if str(name).startswith(room + "/")]
    return max(found, key=len, default=None)


def test_arrows__every_source_lies_in_a_room():
    assert [str(path.relative_to(ROOT)) for path in sources() if not room_of(path.relative_to(ROOT))] == []


def test_arrows__lower_rooms_never_name_higher_ones():
    wrong = []
    for path in sources():
        room = room_of(path.relative_to(ROOT))
        for quote, name in includes(path):
            target = room_of(name)
            if name in PUBLIC and room.startswith("worker/"):
                continue
            if quote == '"' and target and target != room and target not in ROOMS[room]:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert wrong == []


def test_arrows__the_worker_sees_the_routing_table_only():
    wrong = [f"{path.relative_to(ROOT)} includes {name}"
             for path in sources() if path.relative_to(ROOT).parts[0] == "worker"
             for _, name in includes(path)
             if name.startswith("routing/") and name not in WORKER_ROUTING]
    assert wrong == []


def test_arrows__the_controllers_membership_and_its_epochs_do_not_see_each_other():
    seen = {}
    for name, allowed in LIFETIMES.items():
        for path in (ROOT / "controller").glob(f"{name}*.[ch]"):
            named = {other for _, other in includes(path) if other.startswith("controller/")}
            seen[path.name] = named - {f"controller/{other}.h" for other in allowed}
    assert len(seen) >= 6 and not any(seen.values()), seen


def test_arrows__the_worker_program_sees_the_public_header_only():
    wrong = [f"{path.relative_to(ROOT)} includes {name}" for path in sources() if path.parent == PROGRAM
             for quote, name in includes(path)
             if quote == '"' and name not in ("weft.h", "weft_play.h") and ("/" in name or not (PROGRAM / name).exists())]
    assert wrong == []


def test_arrows__every_quoted_include_is_written_from_the_root():
    wrong = [f"{path.relative_to(ROOT)} includes {name}" for path in sources()
             for quote, name in includes(path)
             if quote == '"' and path.parent != PROGRAM and not (ROOT / name).exists()
             and not (path in INSTALLED and path.parent / name in INSTALLED)]
    assert wrong == []


def test_foreign_headers__have_one_home():
    wrong = []
    for path in sources():
        relative = str(path.relative_to(ROOT))
        for quote, name in includes(path):
            for pattern, homes in FOREIGN.items():
                if quote == "<" and re.fullmatch(pattern, name):
                    homes = {homes} if isinstance(homes, str) else homes
                    if not any(relative == home or (home.endswith("/") and relative.startswith(home))
                               for home in homes):
                        wrong.append(f"{relative} includes <{name}>")
    assert wrong == []


def test_allocation__passes_through_base_memory():
    pattern = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|strdup|strndup|asprintf|free)\s*\(")
    wrong = []
    for path in sources():
        relative = str(path.relative_to(ROOT))
        if relative == "base/memory.c" or path.parent == PROGRAM:
            continue
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        code = re.sub(r'"(\\.|[^"\\])*"', '""', code)
        wrong += [f"{relative}: {match.group(1)}" for match in pattern.finditer(code)]
    assert wrong == []


HEADERS = [path for path in sources((".h",))]


def cuda_flags():
    """Where the build has CUDA's headers, or None where it has none: they lie in no folder of the system's."""
    for one in json.loads((BUILD / "compile_commands.json").read_text()):
        if one["file"].endswith("transport/cuda/driver.c"):
            return [flag for flag in shlex.split(one["command"]) if flag.startswith("-I")]
    return None


@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers__stand_alone(language, tmp_path):
    wrong = []
    for header in HEADERS:
        relative = header.relative_to(ROOT)
        if language == "c++" and header not in INSTALLED:
            continue
        cuda = cuda_flags() if str(relative) == "transport/cuda/driver.h" else []
        if cuda is None:
            continue
        source = tmp_path / ("x.c" if language == "c" else "x.cc")
        source.write_text(f'#include "{relative}"\n')
        flags = ["-std=gnu11"] if language == "c" else ["-std=c++17", "-x", "c++"]
        done = subprocess.run(["gcc" if language == "c" else "g++", *flags, "-D_GNU_SOURCE", "-Wall",
                               "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT}", *cuda,
                               *([f"-I{ROOT}/worker/api"] if header.parent == PROGRAM else []), str(source)],
                              capture_output=True, text=True)
        if done.returncode:
            wrong.append(f"{relative}: {done.stderr.splitlines()[:3]}")
    assert wrong == []


def exported():
    out = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "libweft.so")],
                         capture_output=True, text=True, check=True).stdout
    return {line.split()[2].split("@")[0] for line in out.splitlines() if " T " in line}


def declared():
    text = "\n".join(header.read_text() for header in INSTALLED)
    return set(re.findall(r"WEFT_API[^;]*?\b(weft_\w+)\s*\(", text))


def test_library__exports_what_the_header_declares_and_nothing_else():
    assert exported() == declared()


def test_programs__start_without_the_libraries_that_are_opened():
    """transport/ opens libibverbs and librdmacm where they are wanted, metrics/ libmicrohttpd: no inline function of theirs may call one."""
    wrong = []
    for path in [*BUILD.iterdir(), *(BUILD / "tests" / "programs").iterdir()]:
        if not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        needed, wanted = (subprocess.run([*tool, path], capture_output=True, text=True, check=True).stdout
                          for tool in (("readelf", "-d"), ("nm", "-D", "--undefined-only")))
        wrong += [f"{path.name}: {name}" for name in re.findall(r"\[(lib(?:ibverbs|rdmacm|microhttpd)\.so\S*)\]", needed)
                  + re.findall(r"\bU (_*(?:ibv|rdma|MHD)_\w+)", wanted)]
    assert wrong == []


def test_install__names_the_headers_that_are_installed():
    text = (ROOT / "cmake/install.cmake").read_text()
    assert set(re.findall(r"worker/api/(\w+\.h)", text)) == {header.name for header in INSTALLED}


def test_installed_headers__name_no_file_that_is_not_installed():
    wrong = [f"{header.name}: {name}" for header in INSTALLED
             for name in re.findall(r"[\w./-]*\w\.(?:h|c|md|py)\b", header.read_text())
             if name not in ("weft.h", "weft_base.h", "weft_play.h", "stddef.h", "stdint.h")]
    assert wrong == []


def test_codes__of_the_public_header_are_those_of_the_table():
    public = dict(re.findall(r"WEFT_E_(\w+) = (\d+)", (ROOT / "worker/api/weft_base.h").read_text()))
    table = dict(re.findall(r"X\((\w+), (\d+), \d+,", (ROOT / "base/error.h").read_text()))
    assert public == table


def test_files__stay_below_700_lines():
    tracked = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.py"], cwd=ROOT, capture_output=True,
                             text=True, check=True).stdout.split()
    assert [f for f in tracked if len((ROOT / f).read_text().splitlines()) > 700] == []


def test_examples__see_the_installed_headers_only():
    """They are built from what is installed, so they can name nothing else; and they are a page each."""
    examples = sorted((ROOT / "examples").rglob("*.[ch]"))
    assert examples
    for path in examples:
        names = [name for quote, name in includes(path) if quote == '"']
        assert [name for name in names if not (path.parent / name).exists()] == [], path
        assert len(path.read_text().splitlines()) <= 150, path


def test_files__start_with_the_licence_line():
    assert [str(path.relative_to(ROOT)) for path in [*sources(), *sorted((ROOT / "examples").rglob("*.[ch]"))]
            if "SPDX-License-Identifier: Apache-2.0" not in path.read_text()[:80]] == []
