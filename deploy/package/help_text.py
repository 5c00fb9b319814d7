# SPDX-License-Identifier: Apache-2.0
"""What --help of the programs says, taken apart: manual pages (manual.py) and completion (completion.py) are made of it when weft
is built, so that both know every command and every option of that build, and nobody writes them down twice."""
import dataclasses
import json
import os
import pathlib
import re
import subprocess

PROGRAMS = ("weft", "weft-controller", "weft-worker")
# argp folds no line at this width; one that is folded cannot be told from two
WIDE = {"ARGP_HELP_FMT": "rmargin=9999", "LC_ALL": "C", "PATH": os.environ.get("PATH", "/usr/bin:/bin")}
OPTION = re.compile(r" {2,6}(?:-(?P<letter>\S)(?:, )?)?"
                    r"(?:--(?P<name>[a-z][a-z0-9-]*)(?:=(?P<argument>\S+))?)?(?: +(?P<text>\S.*)|\s*)")
# an argument that takes one of few words, where the text lists them: "json, csv or html", "greedy (default), lpt"
WORD = re.compile(r"[a-z][a-z0-9-]*(?::[A-Z])?")
LISTED = {"NAME", "KIND", "WHO", "WHAT", "ROLE", "WHERE", "FORM", "NAME|LIST", "LIST", "STATE"}


class Unreadable(Exception):
    """--help is not what argp prints."""


@dataclasses.dataclass
class Option:
    letter: str
    name: str
    argument: str
    text: str

    @property
    def names(self):
        return [f"-{self.letter}"] * bool(self.letter) + [f"--{self.name}"] * bool(self.name)

    @property
    def values(self):
        """The words that its text lists, or []."""
        return listed_words(self.text) if self.argument in LISTED else []


@dataclasses.dataclass
class Command:
    words: list          # as weft, route, plan
    what: str            # one line
    usages: list         # what may stand behind the words, a form each
    description: list    # paragraphs
    groups: list         # (heading or "", options)
    after: list          # blocks of lines behind the options

    @property
    def name(self):
        return "-".join(self.words)

    @property
    def options(self):
        return [option for _, options in self.groups for option in options]

    @property
    def operands(self):
        """MODEL, DIR, .. of the first form, in order."""
        plain = re.sub(r"\[OPTION\.\.\.\]", "", self.usages[0])
        return [word for word in re.findall(r"[A-Z][A-Z_]*", re.sub(r"--?[a-z-]+[ =]?[A-Z]*", "", plain))]

    @property
    def repeats(self):
        """Whether more may follow that are as the last operand: FILE.. ."""
        return re.sub(r"\[OPTION\.\.\.\]", "", self.usages[0]).rstrip("]").endswith("..")


def listed_words(text):
    plain = re.sub(r"\([^()]*\)", "", text)
    for part in re.split(r"[:;](?:\s|$)", plain):
        words = [word.strip() for word in re.split(r",\s*or\s|,|\sor\s", part.rstrip(". "))]
        if len(words) > (1 if " or " in part else 2) and all(WORD.fullmatch(word) for word in words):
            return [word for word in words if ":" not in word]
    return []


def said_by(folder, words):
    """What a program says to those words on standard output."""
    program = pathlib.Path(folder) / words[0]
    command = f"{program} {' '.join(words[1:])}"
    try:
        done = subprocess.run([str(program), *words[1:]], env=WIDE, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable(f"{command} cannot be run: {error}; build weft first") from error
    if done.returncode or not done.stdout:
        raise Unreadable(f"`{command}` ended with {done.returncode} and {len(done.stdout)} bytes: {done.stderr.strip()[-300:]}")
    return done.stdout


def blocks_of(lines):
    """Runs of lines without an empty one."""
    block = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []


def option_of(line):
    match = OPTION.fullmatch(line)
    if not match or not (match["letter"] or match["name"]):
        return None
    return Option(match["letter"] or "", match["name"] or "", match["argument"] or "", match["text"] or "")


def parse(words, what, text):
    lines = text.splitlines()
    usage = re.compile(rf"(?:Usage:|  or: ) {re.escape(' '.join(words))}(?: (.*))?")
    usages = []
    while lines and (match := usage.fullmatch(lines[0].rstrip())):
        usages.append((match[1] or "").strip())
        lines.pop(0)
    if not usages:
        first = lines[0] if lines else ""
        raise Unreadable(f"`{' '.join(words)} --help` begins with '{first}', not with 'Usage: {' '.join(words)}'")
    command = Command(list(words), what, usages, [], [], [])
    for block in blocks_of(lines):
        heading = ""
        if re.match(r" [A-Z].*:$", block[0]) and len(block) > 1 and option_of(block[1]):
            heading = block.pop(0).strip().rstrip(":")
        if not option_of(block[0]):
            (command.after if command.groups else command.description).append(block)
            continue
        options = []
        for line in block:
            option = option_of(line)
            if option:
                options.append(option)
            elif options and line.startswith(" " * 12):  # of an option that leaves no room beside it
                options[-1].text = f"{options[-1].text} {line.strip()}".strip()
            else:
                raise Unreadable(f"`{' '.join(words)} --help`: the line '{line}' among options is none")
        command.groups.append((heading, options))
    if not any(option.name == "help" for option in command.options):
        raise Unreadable(f"`{' '.join(words)} --help` shows no option --help: its form has changed")
    return command


def first_line(command):
    """One line that says what a program does, out of its description."""
    sentence = command.description[0][0].split(". ")[0].rstrip(".")
    return sentence[0].lower() + sentence[1:]


def read_all(folder):
    """[(words, what)] of `weft --help` as commands, then those of the other programs."""
    rows = re.findall(r"^  ([a-z][a-z-]*) +([a-z-]*)  +(\S.*)$", said_by(folder, ["weft", "--help"]), re.M)
    if not rows:
        raise Unreadable("`weft --help` lists no command: its form has changed")
    commands = [parse(words, what, said_by(folder, [*words, "--help"]))
                for noun, verb, what in rows for words in [["weft", noun, *[verb] * bool(verb)]]]
    for program in PROGRAMS[1:]:
        command = parse([program], "", said_by(folder, [program, "--help"]))
        command.what = first_line(command)
        commands.append(command)
    return commands


def models_of(folder):
    """The built-in models: they complete where a model is asked for."""
    names = [json.loads(line)["name"] for line in said_by(folder, ["weft", "model", "list", "--json"]).splitlines()]
    if not names:
        raise Unreadable("`weft model list --json` lists no model")
    return names
