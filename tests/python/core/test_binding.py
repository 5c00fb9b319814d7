# SPDX-License-Identifier: Apache-2.0
"""The binding says what the installed headers say, by the compiler's own account."""
import pathlib
import re
import subprocess
import sys

import weft
from weft._library import HERE, ffi, lib

HEADERS = [HERE / "include" / name for name in ("weft_base.h", "weft.h")]
STRUCTS = sorted(set(re.findall(r"}\s*(weft_\w+);", "\n".join(header.read_text() for header in HEADERS))))


def test_binding__has_every_struct_as_the_compiler_lays_it_out(tmp_path):
    lines, expected = [], []
    for struct in STRUCTS:
        kind = ffi.typeof(struct)
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        expected.append(f"{struct} {ffi.sizeof(kind)}")
        for name, field in kind.fields:
            lines.append(f'printf("{struct}.{name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct} *)0)->{name}));')
            expected.append(f"{struct}.{name} {field.offset} {ffi.sizeof(field.type)}")
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include "weft.h"\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run(["gcc", f"-I{HERE / 'include'}", "-o", tmp_path / "layout", source], check=True, timeout=60)
    said = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert len(STRUCTS) >= 15 and said.splitlines() == expected


def test_binding__has_every_function_and_code_of_the_headers():
    text = "\n".join(header.read_text() for header in HEADERS)
    declared = set(re.findall(r"WEFT_API[^;]*?\b(weft_\w+)\s*\(", text))
    assert len(declared) > 50 and declared <= set(dir(lib))
    for name in declared:
        assert getattr(lib, name) is not None
    assert {f"WEFT_E_{code.name}": str(int(code)) for code in weft.Code} == dict(re.findall(r"(WEFT_E_\w+) = (\d+)", text))


def test_binding__is_made_of_the_headers_beside_it(tmp_path):
    root = pathlib.Path(__file__).resolve().parents[3]
    again = tmp_path / "again.py"
    subprocess.run([sys.executable, root / "python/binding.py", again, *HEADERS], check=True, timeout=60)
    assert again.read_text() == (HERE / "_binding.py").read_text()
    for header in HEADERS:
        assert header.read_text() == (root / "worker/api" / header.name).read_text()


def test_import__brings_neither_torch_nor_numpy():
    done = subprocess.run([sys.executable, "-c", "import sys, weft; print(sorted({'torch', 'numpy'} & set(sys.modules)))"],
                          capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_programs__are_on_the_path_of_the_environment():
    for name in weft.programs.NAMES:
        done = subprocess.run([pathlib.Path(sys.executable).parent / name, "--version"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and weft.__version__ in done.stdout, done
