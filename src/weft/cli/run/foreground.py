"""Runs a mesh in the foreground until a signal ends it. On a terminal the view is redrawn in place; elsewhere one line
is printed per change. The engine is always stopped before this returns, also after an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from weft.base import log
from weft.base.own_command import with_this_weft
from weft.ca.status import refuse_unusable
from weft.cli.print.mesh_tables import is_settled, mesh_view
from weft.cli.print.output import fail, say
from weft.cli.print.status_changes import changes
from weft.cli.run.directories import refuse_without_directory
from weft.local.engine import Engine
from weft.local.identities import Trust
from weft.local.run_directory import find
from weft.local.status import MeshStatus
from weft.netns.privileges import missing_privileges

Tips = Callable[[MeshStatus], list[tuple[str, list[str]]]]  # (what happens, the commands)

Show = Callable[[Engine, asyncio.Event, Tips | None], Coroutine[None, None, None]]

REDRAW = 0.5  # seconds; the figures of the edges are not updated more often
FOOTER_LINES = 3  # including the line that a terminal reserves for its cursor
_FOOTER = Text("\nCtrl-C ends the mesh", "dim")
LOOK = 0.1  # seconds between two polls for changes to print


def run_foreground(
    directory: Path,
    *,
    name: str,
    live: bool,
    tips: Tips | None = None,
    trust: Trust | None = None,
    history: Path | None = None,
    egress: bool = False,
) -> None:
    refuse_what_cannot_run(directory, trust)
    tell_of_killed(name)
    show = _draw if live and sys.stdout.isatty() else _print
    # Problems are part of the status, which is shown; the log would repeat them.
    log.configure("ERROR" if show is _draw else "INFO")
    for shown in ("weft.control.problems", "weft.ca.problems"):
        logging.getLogger(shown).setLevel(logging.CRITICAL)
    engine = Engine(directory, name=name, trust=trust or Trust(), history=history, egress=egress)
    asyncio.run(_run(engine, show, tips))


def refuse_what_cannot_run(directory: Path, trust: Trust | None = None) -> None:
    """End the command before anything is created if the directory does not exist or this user lacks privileges.
    Raises AuthorityError if the directory of the CA in `trust` cannot be used."""
    refuse_without_directory(directory)
    refuse_without_privileges()
    if trust is not None and trust.ca is not None:
        refuse_unusable(trust.ca)


def refuse_without_privileges() -> None:
    missing = missing_privileges()
    if missing:
        hints = dict.fromkeys(with_this_weft(problem.hint) for problem in missing if problem.hint)
        reasons = (f"{problem.where}: {problem.what}" if problem.where.file else problem.what for problem in missing)
        root = "root is needed: " if os.geteuid() else ""
        fail(root + "\n       ".join(reasons), "\n".join(hints))


def tell_of_killed(name: str) -> None:
    record = find(name)
    if record is not None and not record.running:
        say(f"cleaning up after mesh {name}, which had been killed")


async def _run(engine: Engine, show: Show, tips: Tips | None) -> None:
    ended = _ended_by_signal()
    starting = asyncio.create_task(engine.start())
    showing = asyncio.create_task(show(engine, ended, tips))
    waits = {asyncio.create_task(ended.wait()), asyncio.create_task(engine.ending.wait())}
    try:
        await asyncio.wait({starting, showing, *waits}, return_when=asyncio.FIRST_COMPLETED)
        if engine.failure is not None:
            await asyncio.wait({starting})  # the start failed and is cleaning up
        if starting.done() and starting.exception() is None:
            await asyncio.wait({showing, *waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.set()
        for task in (starting, *waits):
            task.cancel()
        await asyncio.gather(starting, showing, *waits, return_exceptions=True)
        if starting.cancelled() or starting.exception() is None:
            _say_if_heard(f"ending mesh {engine.name} …")
        await engine.stop()
    # Raise the failure of the start first. A closed pipe is not a failure: the reader has seen enough.
    for task in (starting, showing):
        if not task.cancelled() and not isinstance(task.exception(), BrokenPipeError):
            task.result()
    _say_if_heard(f"mesh {engine.name} is gone")
    if engine.failure is not None:
        raise engine.failure


def _say_if_heard(words: str) -> None:
    """Print the message `words`. If the pipe or terminal is closed, do nothing: that must not keep the mesh from
    ending."""
    with contextlib.suppress(OSError):
        say(words)
        return
    # Buffered output would fail again when the process exits, and change its exit code.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _ended_by_signal() -> asyncio.Event:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


async def _draw(engine: Engine, ended: asyncio.Event, tips: Tips | None) -> None:
    """Redraw the whole view in place on a terminal, until `ended` is set. `tips`: returns things for the user to try,
    which are shown below the view; None: none."""
    console = Console(highlight=False)
    # Log lines are printed above the view, because Live replaces standard error.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        log.configure("ERROR")
        tips_shown = False
        while not await _passes(ended, REDRAW):
            status = engine.status()
            empty = [Text(f"\n{line}") for line in _still_empty(status)]
            tip_lines = [] if tips_shown else _tip_lines(tips, status)
            whole = Group(mesh_view(status), *empty, *tip_lines, _FOOTER)
            if len(console.render_lines(whole)) < console.height:
                live.update(whole, refresh=True)
                continue
            if tip_lines and is_settled(status):  # the tips do not fit beside the view: print them once
                tips_shown = True
                console.print(*tip_lines, sep="\n")
            fitting = mesh_view(status, height=console.height - FOOTER_LINES - 2 * len(empty))
            live.update(Group(fitting, *empty, _FOOTER), refresh=True)
        live.update(Text(), refresh=True)
    log.configure("ERROR")


async def _print(engine: Engine, ended: asyncio.Event, tips: Tips | None) -> None:
    """Print one line per change, where there is no terminal, until `ended` is set. `tips`: as for `_draw`."""
    before: MeshStatus | None = None
    tips_shown = False
    while not await _passes(ended, LOOK):
        status = engine.status()
        for line in (*changes(before, status), *_newly_empty(before, status)):
            _line(line)
        if tips is not None and not tips_shown and is_settled(status):
            tips_shown = True
            for tip in _tip_lines(tips, status):
                _line(tip.plain)
        before = status


def _newly_empty(before: MeshStatus | None, after: MeshStatus) -> list[str]:
    return [line for line in _still_empty(after) if before is None or line not in _still_empty(before)]


def _still_empty(status: MeshStatus) -> list[str]:
    return [no_objects(status)] if status.objects == 0 and not status.lacks_workloads else []


def no_objects(status: MeshStatus) -> str:
    return f"no objects in {status.directory} yet; waiting for files"


async def _passes(ended: asyncio.Event, seconds: float) -> bool:
    """Wait for at most `seconds`, and return whether `ended` was set in that time."""
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return False
    return True


def _line(text: str) -> None:
    # Flush, so that a log file or a pipe shows the line at once, and a closed pipe raises an error here and not at
    # exit.
    print(text, flush=True)


def _tip_lines(tips: Tips | None, status: MeshStatus) -> list[Text]:
    if tips is None:
        return []
    lines = [Text(), Text("Things to try, in another terminal:", "bold")]
    for number, (what, commands) in enumerate(tips(status), 1):
        lines += [Text(f" {number}. {what}"), *(Text(f"    {command}", "cyan") for command in commands)]
    return lines
