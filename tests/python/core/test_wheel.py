# SPDX-License-Identifier: Apache-2.0
"""What is installed needs nothing of the machine but libc and its like."""
import re
import subprocess

import weft
from weft._library import HERE

SYSTEMS = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.\d+")


def test_wheel__brings_every_library_but_the_systems_and_links_none_of_rdma():
    programs = [HERE / "bin" / name for name in weft.programs.NAMES]
    brought = sorted((HERE.parent / "weft.libs").glob("*.so*"))
    assert len(brought) >= 5
    for file in [*programs, *(HERE / "lib").iterdir(), *brought]:
        said = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True, timeout=60).stdout
        for needed in re.findall(r"NEEDED.*\[(.*)\]", said):
            assert SYSTEMS.fullmatch(needed) or needed.startswith("libweft.so.") or (HERE.parent / "weft.libs" / needed).exists(), \
                f"{file}: {needed}"
