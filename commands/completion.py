"""`odradek completion`: the scripts that complete commands, options and names in a shell.

They are short: what may stand somewhere is asked of `odradek __complete` (`completing.py`) at each Tab.
"""

import argparse
import sys

ABOUT = """\
Print a script that completes commands and options in a shell, and the names of topics,
groups and profiles. Names are asked of the brokers of the command line, for a second at
most, and are remembered for 5 seconds in $XDG_CACHE_HOME/odradek (else ~/.cache/odradek)."""

EXAMPLES = """\
examples:
  source <(odradek completion bash)
                        now; in ~/.bashrc: always
  odradek completion bash > ~/.local/share/bash-completion/completions/odradek
  odradek completion zsh > "${fpath[1]}/_odradek"
  odradek completion fish > ~/.config/fish/completions/odradek.fish

exit status: 0."""

_BASH = """\
# Completion of odradek for bash.
_odradek() {
  # Bash splits words at colons and equals signs, too; only what stands behind the last of them is replaced.
  local line="${COMP_LINE:0:COMP_POINT}" kind name help
  local word="${line##*[[:space:]]}"
  local value="${word##*[:=]}"
  local kept="${word%"$value"}"
  COMPREPLY=()
  {
    read -r kind
    while IFS=$'\\t' read -r name help; do
      printf -v name '%q' "$name"
      COMPREPLY+=("${name#"$kept"}")
    done
  } < <(odradek __complete "$line" 2>/dev/null)
  case "$kind" in
    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
    directories) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
  esac
}
complete -o bashdefault -F _odradek odradek
"""

_ZSH = """\
#compdef odradek
# Completion of odradek for zsh.
_odradek() {
  local -a lines candidates
  local line
  lines=("${(@f)$(odradek __complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
  case "$lines[1]" in
    files) compset -P '--[^=]#='; _files; return ;;
    directories) compset -P '--[^=]#='; _files -/; return ;;
  esac
  for line in "${(@)lines[2,-1]}"; do
    candidates+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
  done
  _describe odradek candidates
}
if [ "$funcstack[1]" = "_odradek" ]; then
  _odradek "$@"
else
  compdef _odradek odradek
fi
"""

_FISH = """\
# Completion of odradek for fish.
function _odradek
  set -l lines (odradek __complete (commandline -pc | string collect) 2>/dev/null)
  switch "$lines[1]"
    case files
      __fish_complete_path (commandline -ct)
    case directories
      __fish_complete_directories (commandline -ct)
    case '*'
      printf '%s\\n' $lines[2..-1]
  end
end
complete -c odradek -f -a '(_odradek)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=tuple(SCRIPTS))


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    sys.stdout.write(SCRIPTS[options.shell])
    return 0
