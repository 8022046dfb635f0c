"""Shell completion: `weft completion SHELL` prints the script that a shell loads. At each press of Tab, the shell runs
`weft` with $_WEFT_COMPLETE set, which prints the candidates. `cli/flags/completions.py` finds the candidates of each
parameter.

Rule: only candidates are printed, and a lookup ends after two seconds, even if a mesh does not respond.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem, ShellComplete

ASKED = "_WEFT_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_PATIENCE = 2.0  # seconds
# Characters that a shell does not read as part of a word.
_SPECIAL = frozenset("|&;<>()$`\\\"' \t*?[]#~!{}")

# If weft offers no candidates, both scripts complete file names. click's own scripts lose the text after a comma, and
# do not escape for bash.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local words="${COMP_WORDS[*]}"
    mapfile -t COMPREPLY < <(env COMP_WORDS="$words" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1")
    [ -n "${COMPREPLY[0]}" ] || COMPREPLY=()
}
complete -o default -o nosort -F %(complete_func)s %(prog_name)s
"""
_FISH = """\
function %(complete_func)s
    set -l typed (commandline -cp)
    set -l word (commandline -ct)
    set -l offered (env COMP_WORDS="$typed" COMP_CWORD="$word" %(complete_var)s=fish_complete %(prog_name)s)
    if test -n "$offered"
        printf '%%s\\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), help="The shell: bash, zsh or fish.")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell, for commands, flags and names. To install it for the current shell: weft
    --install-completion.

    \b
    Example: weft completion bash > ~/.local/share/bash-completion/completions/weft
             weft completion zsh > "${fpath[1]}/_weft"
             weft completion fish > ~/.config/fish/completions/weft.fish
    """
    click.echo(_script(context.find_root().command, shell))


def install(app: click.Command) -> None:
    """Install completion for `app` (the command `weft`) in the shell that started this command: write the completion
    script to a file that the shell loads, and print the path of this file."""
    from weft.cli.print.output import fail

    shell = _shell()
    if shell is None:
        fail("the shell of this terminal is unknown", "print its script: weft completion bash", code=2)
    file, beginning = _place(shell)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_script(app, shell), encoding="utf-8")
        for settings, line in beginning.items():
            text = settings.read_text(encoding="utf-8") if settings.exists() else ""
            if line not in text.splitlines():
                settings.write_text(f"{text.rstrip()}\n\n{line}\n".lstrip(), encoding="utf-8")
    except OSError as error:
        fail(
            f"{error.filename or file} cannot be written: {error.strerror}",
            f"print the script instead: weft completion {shell}",
        )
    click.echo(f"{shell} completion installed in {file}")
    click.echo("it takes effect in new terminals")


def _place(shell: str) -> tuple[Path, dict[Path, str]]:
    """Return the path of the completion script of `shell`, and the line to add to each of the shell's settings files
    so that the shell loads the script."""
    from pathlib import Path

    home = Path.home()
    if shell == "fish":
        return home / ".config" / "fish" / "completions" / "weft.fish", {}
    if shell == "zsh":
        return home / ".zfunc" / "_weft", {home / ".zshrc": "fpath+=~/.zfunc; autoload -Uz compinit; compinit"}
    file = home / ".bash_completions" / "weft.sh"
    return file, {home / ".bashrc": f"source '{file}'"}


def _shell() -> str | None:
    """Return the shell of this terminal: the nearest parent process that is one of SHELLS, or else the user's login
    shell. Return None if the login shell is not one of SHELLS either."""
    from pathlib import Path

    process = os.getppid()
    while process > 1:
        try:
            # The format is `PID (NAME) STATE PARENT ...`; a name may contain parentheses.
            before, _, after = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")
        except OSError:
            break
        name = before.partition("(")[2].lstrip("-")
        if name in SHELLS:
            return name
        process = int(after.split()[1])
    name = Path(os.environ.get("SHELL", "")).name
    return name if name in SHELLS else None


def answer(app: click.Command) -> NoReturn:
    """Print the candidates that a shell requested through $_WEFT_COMPLETE, and exit."""
    status = 0
    with _silence(), _limit(), suppress(Exception, _TooLongError):
        try:
            _register()
            app(prog_name="weft", complete_var=ASKED)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    sys.exit(status)


def _script(app: click.Command, shell: str) -> str:
    from click.shell_completion import get_completion_class

    _register()
    chosen: type[ShellComplete] | None = get_completion_class(shell)
    if chosen is None:
        raise ValueError(f"no completion for {shell}")
    return chosen(app, {}, "weft", ASKED).source()


class _TooLongError(BaseException):
    """The time for a lookup is over. A BaseException, because the lookup catches every Exception and would continue."""


@contextmanager
def _limit() -> Iterator[None]:
    import signal

    def end(*_: Any) -> NoReturn:
        raise _TooLongError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _silence() -> Iterator[None]:
    """Discard standard error inside the block, also that of C code and child processes: their output would appear in
    the middle of the command line."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _register() -> None:
    """Register weft's completion scripts for bash and fish. zsh uses click's."""
    from click.shell_completion import BashComplete, FishComplete, add_completion_class

    class Bash(BashComplete):
        source_template = _BASH

        def format_completion(self, item: CompletionItem) -> str:
            return _escaped(str(item.value), os.environ.get("COMP_WORDS", ""))

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            return _words(super().get_completions(args, incomplete))

    class Fish(FishComplete):
        source_template = _FISH

        def format_completion(self, item: CompletionItem) -> str:
            return f"{item.value}\t{item.help}" if item.help else str(item.value)

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            return _words(super().get_completions(args, incomplete))

    add_completion_class(Bash)
    add_completion_class(Fish)


def _words(items: list[CompletionItem]) -> list[CompletionItem]:
    """Return the candidates `items` without file names: if there are no other candidates, the shell completes file
    names itself."""
    return [item for item in items if item.type == "plain"]


def _escaped(value: str, typed: str) -> str:
    """Return the candidate `value` with special characters escaped for the shell, unless the word being completed,
    the last line of `typed`, begins with a quote."""
    if typed.rpartition("\n")[2].startswith(("'", '"')):
        return value
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in value)
