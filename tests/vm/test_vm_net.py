# SPDX-License-Identifier: Apache-2.0
"""Jobs over TCP on networks that lose, delay, double and reorder packets: hosts of tests/net/hosts.py inside the
machine, whose kernel can do that to them."""
import pathlib
import sys

from machine import program, passes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "net"))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import net_job  # noqa: E402


def test_netem__jobs_end_right_or_clean():
    """TCP makes up for all of it, so they end right; what matters is that no wrong byte is ever published."""
    out = passes(f"WEFT_BIN={program()} python3 tests/net/net_job.py {' '.join(net_job.NETEM)}", seconds=400)
    for case in net_job.NETEM:
        assert f"{case}: " in out, out
