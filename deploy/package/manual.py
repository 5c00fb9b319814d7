#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages of the programs, and of each command of weft, from what --help says (help_text.py):

    manual.py PROGRAMS VERSION WHAT FOLDER     PROGRAMS: where the programs lie; WHAT: what weft is, in a line; FOLDER is filled
                                              anew with NAME.1.gz

Dates are those of SOURCE_DATE_EPOCH, else today's, as reproducible builds want them."""
import gzip
import os
import pathlib
import re
import shutil
import sys
import time

import help_text

DOCUMENTS = ".PP\nDocuments that are named as docs/.. lie in the folder share/doc/weft below the prefix, of packages /usr.\n"
EXAMPLE = ".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n"


def roff(text):
    """As it is to be read: no line of it is a request, and a hyphen of an option can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def synopsis(command, usage):
    def word(match):
        return f"\\fI{match.group()}\\fR"

    shown = re.sub(r"(?<![A-Z-])[A-Z][A-Z_]*(?![a-z])", word, roff(usage))
    return f".B {roff(' '.join(command.words))}\n{shown}\n".rstrip("\n") + "\n"


def option_entry(option):
    names = ", ".join(bold(name) for name in option.names)
    argument = f"{'=' if option.name else ' '}\\fI{roff(option.argument)}\\fR" if option.argument else ""
    return f".TP\n{names}{argument}\n{roff(option.text) or '(no text)'}\n"


def entries(lines):
    """`name: text` with lines that go on, further in, as a list; None where a block is none."""
    found = []
    for line in lines:
        match = re.fullmatch(r"  ([a-z][a-z-]*): (.+)", line)
        if match:
            found.append([match[1], match[2]])
        elif found and line.startswith("      "):
            found[-1][1] += " " + line.strip()
        else:
            return None
    return "".join(f".TP\n{bold(name)}\n{roff(text)}\n" for name, text in found) or None


def block_text(lines):
    """A paragraph, or lines that are meant as they stand."""
    if any(line.startswith("  ") for line in lines):
        return EXAMPLE.format("\n".join(roff(line) for line in lines))
    return ".PP\n" + "\n".join(roff(line) for line in lines) + "\n"


def sections_after(command):
    """What stands behind the options: blocks under a title are sections, all else is NOTES."""
    sections, notes = "", ""
    for lines in command.after:
        title = re.fullmatch(r"([A-Z][a-z ]+):", lines[0])
        if title and len(lines) > 1:
            body = entries(lines[1:]) or EXAMPLE.format("\n".join(roff(line[2:]) for line in lines[1:])).replace(".PP\n", "", 1)
            sections += f".SH {title[1].upper()}\n{body}"
        else:
            notes += block_text(lines)
    return sections + (f".SH NOTES\n{notes.replace('.PP' + chr(10), '', 1)}" if notes else "")


def heading(name, what, version, date):
    return (f'.\\" Made from --help by deploy/package/manual.py.\n.TH {name.upper()} 1 {date} "Weft {version}" "Weft"\n'
            f".SH NAME\n{roff(name)} \\- {roff(what)}\n")


def see_also(names):
    return ".SH SEE ALSO\n" + ",\n".join(f".BR {roff(name)} (1)" for name in names).replace(",\n", " ,\n") + "\n"


def page(command, version, date, others):
    text = heading(command.name, command.what, version, date) + ".SH SYNOPSIS\n"
    text += ".br\n".join(synopsis(command, usage) for usage in command.usages)
    described = "".join(block_text(block) for block in command.description).replace(".PP\n", "", 1)
    text += f".SH DESCRIPTION\n{described}.SH OPTIONS\n"
    for title, options in command.groups:
        text += f".SS {roff(title)}\n" if title else ".SS Others\n" if options is not command.groups[0][1] else ""
        text += "".join(option_entry(option) for option in options)
    text += sections_after(command) + see_also(others)
    return text + (DOCUMENTS if "docs/" in text else "")


def overview(commands, what, version, date):
    """weft(1): every command with its page."""
    text = heading("weft", what, version, date)
    text += ".SH SYNOPSIS\n.B weft\n\\fINOUN VERB\\fR [\\fIOPTION\\fR...]\n.br\n.B weft \\-\\-version\n.br\n.B weft \\-\\-help\n"
    text += ".SH DESCRIPTION\nThe tool beside the programs of a job. Each command has a page of its own.\n.SH COMMANDS\n"
    for command in commands:
        text += f".TP\n{bold(' '.join(command.words))}\n{roff(command.what)};\n.BR {roff(command.name)} (1)\n"
    return text + see_also(help_text.PROGRAMS[1:])


def pages(folder, what, version, date):
    """{file name: text} of all of them."""
    commands = help_text.read_all(folder)
    verbs = [command for command in commands if command.words[0] == "weft"]
    made = {"weft.1": overview(verbs, what, version, date)}
    for command in commands:
        noun = [other.name for other in verbs if other.words[:2] == command.words[:2] and other is not command]
        others = ["weft", *noun] if command in verbs else [name for name in help_text.PROGRAMS if name != command.name]
        made[f"{command.name}.1"] = page(command, version, date, others)
    return made


def main():
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    folder, version, what, out = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    try:
        made = pages(folder, what[0].lower() + what[1:], version, date)
    except help_text.Unreadable as error:
        print(f"manual.py: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, text in made.items():
        (out / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
