#!/usr/bin/env python3
"""Man pages and completions for shells, made from what `ibid --help` prints: help_pages.py IBID OUT_DIR

Writes OUT_DIR/man1/*.1 (one page a command), OUT_DIR/ibid.bash, OUT_DIR/_ibid (zsh) and OUT_DIR/ibid.fish.
"""
import pathlib
import re
import sys
import time
from dataclasses import dataclass, field

import common

# A line of --help: two blanks, the names with their value, two blanks or more, the description.
ENTRY = re.compile(r"^  (\S.*?)(?:\s{2,}(.*))?$")
FILES = re.compile(r"FILE|DIR|PATH|MODEL")


@dataclass
class Flag:
    names: list  # -p, --prompt
    value: str  # empty: a switch
    text: str

    @property
    def takes_files(self):
        return FILES.search(self.value) is not None


@dataclass
class Command:
    words: tuple  # () is ibid itself
    text: str = ""
    usage: str = ""
    sections: list = field(default_factory=list)  # (heading, [Flag])
    places: list = field(default_factory=list)  # positional: (name, text)
    below: list = field(default_factory=list)  # Commands
    aliases: list = field(default_factory=list)
    footer: str = ""

    @property
    def flags(self):
        return [flag for _, flags in self.sections for flag in flags]

    def every(self):
        yield self
        for command in self.below:
            yield from command.every()

    @property
    def title(self):
        return "-".join(("ibid", *self.words))


def unwrapped(lines):
    """Entries of a section, each on one line: what goes on is indented further than its first line."""
    out = []
    for line in lines:
        if re.match(r"^  \S", line) or not out:
            out.append(line)
        else:
            has_text = re.search(r"\S\s{2,}\S", out[-1])  # else the names fill the first line
            out[-1] += (" " if has_text else "  ") + line.strip()
    return out


def read_flag(names, text):
    words, _, value = names.partition(" ")
    return Flag(words.split(","), value.strip(), text)


def read_help(ibid, words=(), aliases=()):
    """The command that `ibid WORDS --help` describes, with all its flags and all below it."""
    # --help-all of a command with commands below it would be the help of all of them.
    told = common.run(ibid, *words, "--help")
    if "--help-all' lists all flags." in told:
        told = common.run(ibid, *words, "--help-all")
    command = Command(words, aliases=list(aliases))
    parts, heading = {None: []}, None
    for line in told.splitlines():
        if re.match(r"^[A-Z][^.]*:$", line) and not line.startswith("Usage:"):
            heading = line[:-1]
            parts[heading] = []
        elif line and not line.startswith(" ") and heading is not None and heading not in ("Example", "Examples"):
            heading = "footer"
            parts.setdefault(heading, []).append(line)
        else:
            parts[heading].append(line)
    before = [line for line in parts.pop(None) if line]
    usage = [line for line in before if line.startswith("Usage:")]
    if not usage:
        common.fail(f"'ibid {' '.join(words)} --help' has no usage.")
    command.usage = usage[0].removeprefix("Usage:").strip()
    command.text = " ".join(line for line in before if not line.startswith("Usage:"))
    for heading, lines in parts.items():
        lines = [line for line in lines if line.strip()]
        if heading == "footer":
            command.footer = "\n".join(lines)
        elif heading in ("Example", "Examples"):
            command.footer = "\n".join([heading + ":", *lines])
        elif heading == "Subcommands":
            for entry in unwrapped(lines):
                names, text = ENTRY.match(entry).groups()
                name, *others = names.split(", ")
                command.below.append(read_help(ibid, (*words, name), others))
                command.below[-1].text = command.below[-1].text or text or ""
        else:
            entries = [ENTRY.match(entry).groups() for entry in unwrapped(lines)]
            command.places += [(name, text or "") for name, text in entries if not name.startswith("-")]
            flags = [read_flag(name, text or "") for name, text in entries if name.startswith("-")]
            if flags:
                command.sections.append((heading, flags))
    return command


def troff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return re.sub(r"^(?=\.)", r"\\&", text, flags=re.M)


def man_flag(flag):
    names = ", ".join(f"\\fB{troff(name)}\\fR" for name in flag.names)
    value = " \\fI" + troff(flag.value) + "\\fR" if flag.value else ""
    return f".TP\n{names}{value}\n{troff(flag.text) or '.br'}\n"


def man_page(command, others, date):
    """The page of a command in the man macros. `others`: the titles of the pages to see also."""
    text = command.text or common.SUMMARY
    first = common.SUMMARY if not command.words else text
    day = time.strftime("%Y-%m-%d", time.gmtime(date))
    out = (f'.TH {troff(command.title.upper())} 1 "{day}" "ibid {common.version()}" "ibid"\n'
           f".SH NAME\n{troff(command.title)} \\- {troff(first)}\n"
           f".SH SYNOPSIS\n.nf\n{troff(command.usage)}\n.fi\n.SH DESCRIPTION\n{troff(text)}\n")
    if command.aliases:
        out += f".PP\nOther names: {troff(', '.join(command.aliases))}\n"
    if command.places:
        out += ".SH ARGUMENTS\n" + "".join(f".TP\n\\fI{troff(name)}\\fR\n{troff(told) or '.br'}\n" for name, told in command.places)
    for heading, flags in command.sections:
        out += f'.SH "{troff(heading.upper())}"\n' + "".join(map(man_flag, flags))
    if command.below:
        out += ".SH COMMANDS\n" + "".join(
            f".TP\n\\fB{troff(' '.join(below.words))}\\fR\n{troff(below.text)}\n" for below in command.below)
    if command.footer:
        heading, _, rest = command.footer.partition(":\n")
        is_example = heading in ("Example", "Examples")
        out += (f".SH {heading.upper() if is_example else 'NOTES'}\n.nf\n"
                f"{troff(rest if is_example else command.footer)}\n.fi\n")
    see = ", ".join(f"\\fB{troff(title)}\\fR(1)" for title in others)
    return out + (f".SH SEE ALSO\n{see}\n" if see else "")


def man_pages(ibid, date):
    """Name -> text."""
    out = {}
    for command in ibid.every():
        below = [c.title for c in command.below]
        above = ["-".join(("ibid", *command.words[:-1]))] if command.words else []
        out[command.title + ".1"] = man_page(command, above + below, date)
    return out


def bash_completion(ibid):
    cases = []
    for command in ibid.every():
        if not command.words:
            continue
        names = "|".join([" ".join(command.words)] + [" ".join((*command.words[:-1], a)) for a in command.aliases])
        cases.append(f'    {quote_case(names)})\n      flags="{joined(command.flags)}"\n      takes="{joined(command.flags, True)}"\n'
                     f'      files="{joined(command.flags, True, True)}"\n'
                     f'      below="{" ".join(c.words[-1] for c in command.below)}" model={int(has_model(command))} ;;\n')
    top = " ".join(name for c in ibid.below for name in (c.words[-1], *c.aliases))
    return f"""# bash completion of ibid, made from its --help.
_ibid() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= word i
  local flags="{joined(ibid.flags)}" takes="{joined(ibid.flags, True)}" files="" below="{top}" model=0
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${{COMP_WORDS[i]}}
    [[ " $below " == *" $word "* ]] || continue
    command="${{command:+$command }}$word"
    case $command in
{''.join(cases)}    esac
  done
  if [[ " $files " == *" $previous "* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    [[ $previous == -m || $previous == --model ]] || return 0
    mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -W "$(ibid models 2>/dev/null | cut -d ' ' -f 1)" -- "$current")
  elif [[ " $takes " == *" $previous "* ]]; then
    return 0
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  elif [[ -n $below ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$below" -- "$current")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    ((model)) || return 0
    mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -W "$(ibid models 2>/dev/null | cut -d ' ' -f 1)" -- "$current")
  fi
}}
complete -F _ibid ibid
"""


def joined(flags, takes=False, files=False):
    """Names of all flags, of those with a value, or of those with a file."""
    return " ".join(name for flag in flags if (not takes or flag.value) and (not files or flag.takes_files) for name in flag.names)


def has_model(command):
    return any(name.startswith("MODEL") for name, _ in command.places)


def takes_model(flag):
    return flag.value.split("]")[-1] == "MODEL"


def quote_case(names):
    return "|".join(f'"{name}"' for name in names.split("|"))


def zsh_text(text):
    return text.replace("'", "'\\''").replace("\\[", "[").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_flag(flag):
    action = "_files" if flag.takes_files else " "
    if takes_model(flag):
        action = "__ibid_models"
    value = f":{zsh_text(flag.value)}:{action}" if flag.value else ""
    many = "*" if flag.value.endswith("...") or "repeatable" in flag.text else ""
    without = "" if many or len(flag.names) == 1 else f"({' '.join(flag.names)})"
    return [f"'{many}{without}{name}[{zsh_text(flag.text)}]{value}'" for name in flag.names]


def zsh_name(command):
    return "_ibid" + "".join("_" + word.replace("-", "_") for word in command.words)


def zsh_function(command):
    """The functions of a command and of those below it."""
    lines = [line for flag in command.flags for line in zsh_flag(flag)]
    if command.below:
        told = "\n".join(f"      '{word}:{zsh_text(c.text)}'" for c in command.below for word in (c.words[-1], *c.aliases))
        calls = "\n".join(f"      {'|'.join((c.words[-1], *c.aliases))}) {zsh_name(c)} ;;" for c in command.below)
        lines += ["'1: :->command'", "'*:: :->rest'"]
        body = f"""  local line state ret=1
  local -a commands
  typeset -A opt_args
  _arguments -C -s \\
    {(' ' + chr(92) + chr(10) + '    ').join(lines)} && ret=0
  case $state in
    command)
    commands=(
{told}
    )
    _describe -t commands command commands && ret=0 ;;
    rest)
    case $words[1] in
{calls}
    esac && ret=0 ;;
  esac
  return ret"""
    else:
        for place, told in command.places:
            lines.append(f"'*: :{'__ibid_models' if place.startswith('MODEL') else '_files'}'")
            break
        body = f"  _arguments -s \\\n    {(' ' + chr(92) + chr(10) + '    ').join(lines)}"
    return f"{zsh_name(command)}() {{\n{body}\n}}\n" + "".join(zsh_function(below) for below in command.below)


def zsh_completion(ibid):
    return f"""#compdef ibid
# zsh completion of ibid, made from its --help.
__ibid_models() {{
  local -a names
  names=(${{(f)"$(ibid models 2>/dev/null | cut -d ' ' -f 1)"}})
  compadd -a names
  _files
}}
{zsh_function(ibid)}
_ibid "$@"
"""


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


FISH_MODELS = fish_text("(ibid models 2>/dev/null | string split -f 1 ' ')")


def fish_condition(command):
    if not command.words:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {word}" for word in command.words[:-1]]
    seen.append("__fish_seen_subcommand_from " + " ".join((command.words[-1], *command.aliases)))
    if command.below:
        seen.append("not __fish_seen_subcommand_from " + " ".join(c.words[-1] for c in command.below))
    return "; and ".join(seen)


def fish_completion(ibid):
    out = ["# fish completion of ibid, made from its --help.", "complete -c ibid -n __fish_use_subcommand -f"]
    for command in ibid.every():
        condition = fish_text(fish_condition(command))
        for below in command.below:
            for name in (below.words[-1], *below.aliases):
                out.append(f"complete -c ibid -n {condition} -f -a {name} -d {fish_text(below.text)}")
        if has_model(command):
            out.append(f"complete -c ibid -n {condition} -a {FISH_MODELS} -d model")
        for flag in command.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            value = "" if not flag.value else " -r -F" if flag.takes_files else " -x"
            if takes_model(flag):
                value += f" -a {FISH_MODELS}"
            out.append(f"complete -c ibid -n {condition} {names}{value} -d {fish_text(flag.text)}")
    return "\n".join(out) + "\n"


def write(ibid_path, tree, man="share/man/man1", bash="share/bash-completion/completions/ibid",
          zsh="share/zsh/site-functions/_ibid", fish="share/fish/vendor_completions.d/ibid.fish", compress=False):
    """Puts pages and completions into a common.Tree."""
    ibid = read_help(ibid_path)
    for name, text in man_pages(ibid, common.epoch()).items():
        tree.write(f"{man}/{name}" + (".gz" if compress else ""), common.gzipped(text) if compress else text)
    tree.write(bash, bash_completion(ibid))
    tree.write(zsh, zsh_completion(ibid))
    tree.write(fish, fish_completion(ibid))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    tree = common.Tree()
    tree.root = pathlib.Path(sys.argv[2])
    write(sys.argv[1], tree, "man1", "ibid.bash", "_ibid", "ibid.fish")


if __name__ == "__main__":
    sys.exit(main())
