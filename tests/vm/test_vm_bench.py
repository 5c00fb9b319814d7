# SPDX-License-Identifier: Apache-2.0
"""`weft bench write` over real queue pairs. Speeds are not looked at here: tests/bench/verbs does."""
import json
import re

from machine import passes, program

WEFT = program("weft")
MARK = "=====> "


def test_bench_write__verifies_what_it_wrote_and_names_what_fails():
    said = passes(f"""
mark() {{ echo "{MARK}$1"; }}
weft() {{ {WEFT} bench write "$@" 2>&1; echo "code $?"; }}
mark local; weft --local --nic rxe0 --peer-nic rxe1 --sizes 4K..1M --iterations 12 --qps 2 --mtu 512 --json
mark footprint; weft --local --nic rxe0 --peer-nic rxe1 --sizes 64K --footprint 1M --iterations 40 --qps 1 --json
mark nic; weft --local --nic rxe7 --peer-nic rxe1 --sizes 4K
mark peer; weft --local --nic rxe0 --peer-nic rxe7 --sizes 4K
mark killed
{WEFT} key make /tmp/job.key; export WEFT_KEY_FILE=/tmp/job.key
{WEFT} bench write --nic rxe1 --port 20001 >/dev/null 2>&1 &
server=$!
weft 10.77.0.2:20001 --nic rxe0 --sizes 64K,64K --seconds 4s --timeout 40s | while read -r line; do
  echo "$line"
  case "$line" in *verified) sleep 1; kill -9 $server ;; esac
done
""", "--memory", 768, seconds=280)
    parts = dict(part.split("\n", 1) for part in said.split(MARK)[1:])

    *lines, code = parts["local"].splitlines()
    assert code == "code 0", parts["local"]
    lines = [json.loads(line) for line in lines]
    assert [line["bytes"] for line in lines] == [4096, 16384, 65536, 262144, 1048576]
    for line in lines:
        assert line["checked"] is True and line["iterations"] == 12
        assert line["transport"] == "verbs" and line["nic"] == "rxe0"
        assert line["rails"] == 2 and line["qps"] == 2 and line["mtu"] == 512

    line, code = parts["footprint"].splitlines()
    line = json.loads(line)
    assert code == "code 0" and line["checked"] is True
    assert line["footprint"] == 1 << 20 and line["rails"] == 1

    for part, device in (("nic", "rxe7"), ("peer", "rxe7")):
        assert device in parts[part] and parts[part].count("WEFT-E") == 1, parts[part]
        assert "rxe0" in parts[part] and "rxe1" in parts[part], parts[part]  # what there is
        assert not parts[part].endswith("code 0\n")

    assert re.search(r"WEFT-E\d+ .*10\.77\.0\.2", parts["killed"]), parts["killed"]
    assert parts["killed"].count("WEFT-E") == 1 and parts["killed"].endswith("code 75\n"), parts["killed"]
