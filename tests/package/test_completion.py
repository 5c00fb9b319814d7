# SPDX-License-Identifier: Apache-2.0
"""Completion as shells do it: bash's function with the words of a line, and keys typed into both shells."""
import os
import pty
import re
import select
import subprocess
import time

import completion
import help_text
import pytest
from conftest import BIN, run

COMMANDS = {" ".join(command.words): command for command in help_text.read_all(BIN)}
POLICIES = "greedy round-robin round-robin-affinity prefix first-holder modulo hash lpt balanced".split()


def bash(made, folder, *words):
    """What bash's function offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); name=${1//-/_}; compopt() { :; }; '
              '"_$name"; printf "%s\\n" "${COMPREPLY[@]}"')
    said = run("bash", "-u", "-c", script, "bash", made / "completion" / "bash" / words[0], *words, cwd=folder)
    return said.split()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.json").write_text("")
    (tmp_path / "plans").mkdir()
    return tmp_path


def test_bash__offers_the_nouns_and_their_verbs(made, folder):
    nouns = bash(made, folder, "weft", "")
    assert {"route", "model", "doctor", "key"} <= set(nouns)
    assert sorted(nouns) == sorted({words.split()[1] for words in COMMANDS if words.startswith("weft ")})
    assert bash(made, folder, "weft", "ro") == ["route"]
    for noun in nouns:
        verbs = [words.split()[2] for words in COMMANDS if words.startswith(f"weft {noun} ")]
        if verbs:
            assert bash(made, folder, "weft", noun, "") == verbs
    assert bash(made, folder, "weft", "--v") == ["--version"]


def test_bash__offers_every_long_option_of_every_command(made, folder):
    for words, command in COMMANDS.items():
        offered = bash(made, folder, *words.split(), "--")
        assert sorted(offered) == sorted(f"--{option.name}" for option in command.options if option.name), words


@pytest.mark.parametrize("words, offered", [
    (("weft", "route", "plan", "--policy", ""), POLICIES),
    (("weft", "route", "plan", "--policy", "="), POLICIES),
    (("weft", "route", "plan", "--json", "--policy", "=", "ro"), ["round-robin", "round-robin-affinity"]),
    (("weft", "route", "plan", "--model", "=", "Qwen2.5-0"), ["Qwen2.5-0.5B"]),
    (("weft", "route", "export", "--format", "html", "pl"), ["plan.json", "plans"]),
    (("weft", "route", "export", "--format", "=", "html", "pl"), ["plan.json", "plans"]),
    (("weft", "route", "export", "--output", "pl"), ["plan.json", "plans"]),
    (("weft", "route", "diff", "plan.json", "pl"), ["plan.json", "plans"]),
    (("weft", "route", "diff", "plan.json", "plan.json", "pl"), []),
    (("weft", "checkpoint", "make", "--force", "Qwen2.5-0"), ["Qwen2.5-0.5B"]),
    (("weft", "checkpoint", "make", "--seed", "3", "Qwen2.5-0.5B", "pl"), ["plans"]),
    (("weft", "doctor", "-T", "e"), ["efa"]),
    (("weft-worker", "--role", "=", "t"), ["trainer"]),
    (("weft-worker", "--checkpoint", "pl"), ["plans"]),
    (("weft-controller", "--order", "r"), ["rotated", "rounds"]),
    (("weft-controller", "--heartbeat", ""), []),
    (("weft", "nothing", "--x"), []),
])
def test_bash__offers_what_may_stand_there(made, folder, words, offered):
    assert sorted(bash(made, folder, *words)) == sorted(offered)


def test_bash__offers_files_for_every_operand_where_more_may_follow(tmp_path, folder):
    said = "Usage: weft join [OPTION...] MODEL FILE..\nJoins.\n\n      --help    Give this help list\n"
    made = completion.bash("weft", [help_text.parse(["weft", "join"], "joins", said)], ["Qwen"])
    (tmp_path / "completion/bash").mkdir(parents=True)
    (tmp_path / "completion/bash/weft").write_text(made)
    assert bash(tmp_path, folder, "weft", "join", "Q") == ["Qwen"]
    for before in (["Qwen"], ["Qwen", "plan.json"], ["Qwen", "plan.json", "plan.json"]):
        assert sorted(bash(tmp_path, folder, "weft", "join", *before, "pl")) == ["plan.json", "plans"]


def test_values__that_are_offered_are_taken_by_the_program():
    """Words read out of a text, held against the one who knows: a policy and an order that do not exist are refused."""
    job = ["--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2", "--summary"]
    options = {option.name: option for option in COMMANDS["weft route plan"].options}
    for name in ("policy", "order", "memory"):
        assert len(options[name].values) >= 3
        for value in options[name].values:
            run(BIN / "weft", "route", "plan", *job, f"--{name}", value)
        run(BIN / "weft", "route", "plan", *job, f"--{name}", "none-such", code=2)


def seen(screen):
    """What is to be seen of what a shell has written."""
    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x00", "", screen)
    while "\x08" in screen.lstrip("\x08"):
        screen = re.sub(r"[^\x08]\x08", "", screen.lstrip("\x08"))
    return screen


def typed(command, environment, lines, keys, expected, folder):
    """The screen of a shell in a terminal: lines are entered, keys are typed; until the text is there or 20 s are over."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, {"TERM": "dumb", "PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder), **environment})
    screen, end = "", time.monotonic() + 20

    def read_until(pattern):
        nonlocal screen
        while not re.search(pattern, seen(screen)):
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"no /{pattern}/ on the screen: {seen(screen)!r}"
            screen += os.read(terminal, 65536).decode(errors="replace")
    try:
        os.write(terminal, ("\n".join([*lines, "echo rea''dy"]) + "\n").encode())
        read_until("ready")
        time.sleep(0.3)  # the prompt
        screen = ""
        os.write(terminal, keys.encode())
        read_until(expected)
        return screen
    finally:
        os.close(terminal)
        subprocess.run(["kill", "-9", str(child)], check=False)
        os.waitpid(child, 0)


KEYS = [
    ("weft rou\t", r"weft route "),
    ("weft route pl\t--poli\tbalan\t", r"--policy[ =]balanced"),
    ("weft route export --format \t\t", r"csv"),
    ("weft route diff plan\t\t", r"plan\.json"),
    ("weft doc\t--trans\te\t", r"--transport[ =]efa"),
    ("weft-worker --repli\t", r"--replica"),
    ("weft-worker --role inf\t", r"--role inference"),
    ("weft-controller --ord\trou\t", r"--order[ =]rounds"),
]


@pytest.mark.parametrize("keys, expected", KEYS, ids=[keys.replace("\t", "TAB") for keys, _ in KEYS])
def test_bash__completes_what_is_typed(made, folder, keys, expected):
    lines = ["PS1='$ '", "bind 'set enable-bracketed-paste off'",
             *[f"source '{path}'" for path in (made / "completion/bash").iterdir()]]
    typed(["bash", "--norc", "--noprofile", "-i"], {}, lines, keys, expected, folder)


@pytest.mark.parametrize("keys, expected", KEYS, ids=[keys.replace("\t", "TAB") for keys, _ in KEYS])
def test_zsh__completes_what_is_typed(made, folder, keys, expected):
    lines = ["PS1='$ '", "unsetopt zle_bracketed_paste; unset zle_bracketed_paste", f"fpath=('{made}/completion/zsh' $fpath)",
             "autoload -Uz compinit && compinit -u -D"]
    typed(["zsh", "-f", "-i"], {"TERM": "vt100"}, lines, keys, expected, folder)


def test_zsh__reads_every_file(made):
    for path in (made / "completion/zsh").iterdir():
        run("zsh", "-n", path)
        assert path.read_text().startswith(f"#compdef {path.name[1:]}\n")
