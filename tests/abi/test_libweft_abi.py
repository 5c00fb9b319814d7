# SPDX-License-Identifier: Apache-2.0
"""The library's binary interface beside the one that is written down: symbols, their versions, and the
structs of the installed headers (docs/abi.md)."""
import pathlib
import platform
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARY = ROOT / "build" / "release" / "libweft.so"
BASELINE = HERE / "libweft.abi"
DUMP = HERE / "dump"

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the baseline is of x86-64")


def dump(library, out):
    assert shutil.which("abidw"), "abidw is missing: ./bootstrap deps installs abigail-tools"
    subprocess.run([DUMP, library, out], check=True)
    return out


def differences(one, other):
    done = subprocess.run(["abidiff", "--harmless", one, other], capture_output=True, text=True)
    assert done.returncode & 3 == 0, done.stderr  # it failed, or was used wrongly
    return done.stdout if done.returncode else ""


def test_library__has_the_interface_that_is_written_down(tmp_path):
    found = differences(BASELINE, dump(LIBRARY, tmp_path / "now.abi"))
    assert not found, f"{found}\ndocs/abi.md says whether this may be; if so, renew the baseline:\n" \
                      f"    tests/abi/dump build/release/libweft.so tests/abi/libweft.abi"


def test_baseline__holds_every_public_struct_with_its_size():
    headers = "".join((ROOT / "worker" / "api" / name).read_text()
                      for name in ("weft.h", "weft_base.h", "weft_play.h"))
    known = set(re.findall(r"class-decl name='(\w+)' size-in-bits", BASELINE.read_text()))
    assert known == set(re.findall(r"typedef struct (\w+) \{", headers))


def test_soname__names_the_minor_version_until_1_0():
    version = re.search(r"project\(weft VERSION (\d+)\.(\d+)\.", (ROOT / "CMakeLists.txt").read_text())
    major, minor = version.groups()
    found = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    soname = f"libweft.so.{major}.{minor}" if major == "0" else f"libweft.so.{major}"
    assert f"[{soname}]" in found


def test_map__names_every_symbol_in_a_version():
    text = (ROOT / "worker" / "api" / "libweft.map").read_text()
    assert "*;" not in text.replace("local: *;", "")
    named = re.findall(r"\b(weft_\w+);", text)
    assert len(named) == len(set(named))


CHANGES = {
    "a field that is wider": (r"uint32_t update_timeout_ms;", "uint64_t update_timeout_ms;"),
    "a field in the middle": (r"(const char \*nic;)", r"int more, other; \1"),
    "a field at the end": (r"(const char \*replica;)", r"\1 uint64_t more;"),
    "two fields that changed places": (r"int checksums;(.*?)int shadow;", r"int shadow;\1int checksums;"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_comparison__sees_a_changed_struct(change, tmp_path):
    """A small library of one function over weft_options, built of the header as it is and changed."""
    header = (ROOT / "worker" / "api" / "weft.h").read_text()
    pattern, new = CHANGES[change]
    changed, count = re.subn(pattern, new, header, count=1, flags=re.S)
    assert count == 1
    dumps = []
    for name, text in (("before", header), ("after", changed)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "weft.h").write_text(text)
        shutil.copy(ROOT / "worker" / "api" / "weft_base.h", folder)
        (folder / "x.c").write_text('#include "weft.h"\nint weft_open(weft_worker **worker, '
                                    "const weft_options *options, weft_error *error)\n"
                                    "{ (void)worker; (void)error; return options != 0; }\n")
        subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", folder / "libx.so", folder / "x.c"], check=True)
        dumps.append(dump(folder / "libx.so", folder / "x.abi"))
    assert differences(dumps[0], dumps[0]) == ""
    assert "weft_options" in differences(*dumps)
