#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion for bash and zsh, from what --help says (help_text.py):

    completion.py PROGRAMS FOLDER     PROGRAMS: where the programs lie; FOLDER is filled anew with bash/NAME and zsh/_NAME

Both are tables of the commands with one function that reads them: nothing is asked of a program while somebody types."""
import pathlib
import re
import shutil
import sys

import help_text

FILES = re.compile(r"(?:FILE|PATH|JOBFILE|[AB])(?:\|.*)?")
FOLDERS = re.compile(r"DIR|FOLDER")
MODELS = {"MODEL", "M"}

BASH = r"""# Completion of @NAME@ for bash, made from --help by deploy/package/completion.py.

# options | option=kind or words .. | kinds of operands; kinds are :file, :folder, :none, or the words themselves;
# behind the last one :more says that others may follow it
declare -gA @TABLE@=(
@ROWS@
)

@FUNCTION@() {
	local current="${COMP_WORDS[COMP_CWORD]}" key=@NAME@ option="" operand=0 kinds value index word from
	local -a rest
	COMPREPLY=()
	# bash cuts --option=value at the sign
	if [[ $current == "=" ]]; then
		option=${COMP_WORDS[COMP_CWORD - 1]} current=""
	elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == -* ]]; then
		option=${COMP_WORDS[COMP_CWORD - 1]}
	fi
	from=1
	for ((index = 1; index < COMP_CWORD; index++)); do
		word=${COMP_WORDS[index]}
		[[ -n ${@TABLE@[$key $word]+there} ]] || break
		key="$key $word"
		from=$((index + 1))
	done
	IFS='|' read -r word kinds value <<<"${@TABLE@[$key]}"
	if [[ -n $option ]]; then
		IFS=' ' read -ra rest <<<"$kinds"
		for index in "${rest[@]}"; do
			[[ ${index%%=*} == "$option" ]] || continue
			_@FUNCTION@_kind "${index#*=}" "$current"
			return 0
		done
	fi
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
		return 0
	fi
	# which operand this is: what is no option, nor the value of one
	for ((index = from; index < COMP_CWORD; index++)); do
		option=${COMP_WORDS[index]}
		if [[ $option == -* ]]; then
			if [[ ${COMP_WORDS[index + 1]} == "=" ]]; then
				((index += 2))
			elif [[ " $kinds" == *" $option="* ]]; then
				((index++))
			fi
		else
			((operand++))
		fi
	done
	IFS=' ' read -ra rest <<<"$value"
	if [[ $value == *" :more" ]] && ((operand >= ${#rest[@]} - 2)); then
		operand=$((${#rest[@]} - 2))
	fi
	_@FUNCTION@_kind "${rest[operand]:-:none}" "$current"
}

_@FUNCTION@_kind() {
	case $1 in
	:none) ;;
	:file) mapfile -t COMPREPLY < <(compgen -f -- "$2"); compopt -o filenames ;;
	:folder) mapfile -t COMPREPLY < <(compgen -d -- "$2"); compopt -o filenames ;;
	*,:file)
		local words=${1%,:file}
		mapfile -t COMPREPLY < <(compgen -W "${words//,/ }" -f -- "$2")
		compopt -o filenames
		;;
	*) mapfile -t COMPREPLY < <(compgen -W "${1//,/ }" -- "$2") ;;
	esac
}

complete -F @FUNCTION@ @NAME@
"""

ZSH_VERBS = """#compdef weft
# Completion of weft for zsh, made from --help by deploy/package/completion.py.

_weft_verbs() { # those behind a noun, as `verb:what it does`
	local -a verbs=("${@:2}")
	_describe -t commands "$1" verbs
}

_weft() {
	local curcontext="$curcontext" noun=$words[2] verb=$words[3]
	if ((CURRENT == 2)); then
		_weft_verbs command @NOUNS@
		return
	fi
	case $noun in
@CASES@
	esac
}

_weft "$@"
"""
ZSH_PLAIN = """#compdef @NAME@
# Completion of @NAME@ for zsh, made from --help by deploy/package/completion.py.

_arguments -s -S @SPECS@
"""


def names_of(option):
    return [name for name in option.names if name != "-?"]


def kind_of(argument, values, models):
    """What completes an argument: words, or one of the kinds that bash's function knows."""
    if values:
        return ",".join(values)
    if argument in MODELS:
        return ",".join([*models, ":file"])
    if FILES.fullmatch(argument):
        return ":file"
    return ":folder" if FOLDERS.fullmatch(argument) else ":none"


def option_kind(option, models):
    if option.name == "model" and option.argument == "NAME":
        return kind_of("MODEL", [], models)
    return kind_of(option.argument, option.values, models)


def bash_row(words, options, pairs, operands):
    return f"\t[{quoted(' '.join(words))}]='{' '.join(options)}|{' '.join(pairs)}|{' '.join(operands)}'"


def bash(name, commands, models):
    rows = []
    nouns = {}
    for command in commands:
        words = command.words
        for depth in range(1, len(words)):
            nouns.setdefault(tuple(words[:depth]), []).append(words[depth])
        options = [name for option in command.options for name in names_of(option)]
        pairs = [f"{name}={option_kind(option, models)}" for option in command.options if option.argument for name in option.names]
        operands = [kind_of(operand, [], models) for operand in command.operands]
        rows.append(bash_row(words, options, pairs, operands + [":more"] * bool(operands and command.repeats)))
    for words, following in nouns.items():
        own = ["--help", "--version"] if len(words) == 1 else ["--help"]
        rows.append(bash_row(list(words), own, [], [",".join(dict.fromkeys(following))]))
    function = "_" + name.replace("-", "_")
    return (BASH.replace("@TABLE@", f"{function}_table").replace("@FUNCTION@", function).replace("@NAME@", name)
            .replace("@ROWS@", "\n".join(rows)))


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_text(text, most=90):
    """Short, and with nothing that ends a description."""
    short = text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " .."
    return re.sub(r"([\[\]:\\])", r"\\\1", short)


def zsh_action(kind):
    if kind == ":none":
        return ""
    if kind == ":file":
        return "_files"
    if kind == ":folder":
        return "_files -/"
    if kind.endswith(",:file"):
        return f"_alternative \"models\\:model\\:({kind[:-6].replace(',', ' ')})\" \"files\\:file\\:_files\""
    return f"({kind.replace(',', ' ')})"


def zsh_specs(command, models):
    for option in command.options:
        end = f":{zsh_text(option.argument)}:{zsh_action(option_kind(option, models))}" if option.argument else ""
        for name in names_of(option):
            others = [other for other in names_of(option) if other != name]
            sign = ("=" if name.startswith("--") else "+") if option.argument else ""
            yield quoted(f"{'(' + ' '.join(others) + ')' if others else ''}{name}{sign}[{zsh_text(option.text)}]{end}")
    for place, operand in enumerate(command.operands, 1):
        more = command.repeats and place == len(command.operands)
        yield quoted(f"{'*' if more else place}:{operand}:{zsh_action(kind_of(operand, [], models))}")


def zsh_lines(command, models, indent):
    return f" \\\n{indent}".join(["", *zsh_specs(command, models)]).lstrip(" ")


def zsh_weft(commands, models):
    nouns = {}
    for command in commands:
        nouns.setdefault(command.words[1], []).append(command)
    cases, named = [], []
    for noun, those in nouns.items():
        what = those[0].what if len(those[0].words) == 2 else ", ".join(command.words[2] for command in those)
        named.append(quoted(f"{noun}:{zsh_text(what)}"))
        cases.append(f"\t{noun})")
        if len(those[0].words) == 2:
            cases += ["\t\tshift words && ((CURRENT--))",
                      f"\t\t_arguments -s -S {zsh_lines(those[0], models, chr(9) * 3)}", "\t\t;;"]
            continue
        verbs = " ".join(quoted(f"{command.words[2]}:{zsh_text(command.what)}") for command in those)
        cases += ["\t\tif ((CURRENT == 3)); then", f"\t\t\t_weft_verbs 'weft {noun}' {verbs}", "\t\t\treturn", "\t\tfi",
                  "\t\tshift 2 words && ((CURRENT -= 2))", "\t\tcase $verb in"]
        for command in those:
            cases += [f"\t\t{command.words[2]})", f"\t\t\t_arguments -s -S {zsh_lines(command, models, chr(9) * 4)}", "\t\t\t;;"]
        cases += ["\t\tesac", "\t\t;;"]
    return ZSH_VERBS.replace("@NOUNS@", " ".join([*named, "'--help:all commands'", "'--version:which weft this is'"])).replace(
        "@CASES@", "\n".join(cases))


def files(folder):
    """{path: text} of all of them."""
    commands, models = help_text.read_all(folder), help_text.models_of(folder)
    made = {}
    for name in help_text.PROGRAMS:
        own = [command for command in commands if command.words[0] == name]
        made[f"bash/{name}"] = bash(name, own, models)
        made[f"zsh/_{name}"] = (zsh_weft(own, models) if name == "weft" else
                                ZSH_PLAIN.replace("@NAME@", name).replace("@SPECS@", zsh_lines(own[0], models, "\t")))
    return made


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[2])
    try:
        made = files(sys.argv[1])
    except help_text.Unreadable as error:
        print(f"completion.py: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    for name, text in made.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
