"""Runs a mesh in the background: starts `weft up` as a separate process, and waits until its pods are ready. The output
of `weft up` is written to a file beside the mesh's run directory. Only root can read the file, and it is removed when
the mesh ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from io import FileIO
from pathlib import Path

from click.exceptions import Exit

from weft.base.own_command import WEFT
from weft.base.problem import Severity
from weft.cli.print.output import fail, say
from weft.cli.print.status_changes import changes
from weft.cli.run.foreground import no_objects, tell_of_killed
from weft.cli.run.lacking import what_lacks
from weft.local.client import fetch_status
from weft.local.error import LocalError
from weft.local.identities import Trust
from weft.local.run_directory import base_directory, find, output_file
from weft.local.status import MeshStatus, PodPhase, PodStatus

_MOST_NAMED = 5  # pods that are not ready; the line counts the others
_WELL = (PodPhase.READY, PodPhase.COMPLETED)


def run_background(
    directory: Path,
    *,
    name: str,
    patience: float,
    trust: Trust | None = None,
    history: Path | None = None,
    egress: bool = False,
) -> None:
    """Start the mesh and return once all pods are ready. Fail if no further pod becomes ready for `patience` seconds.
    The mesh continues to run in both cases. `trust`: the CA and the lifetime of certificates. `history`: the directory
    for the history. `egress`: pods can reach hosts outside the mesh."""
    record = find(name)
    if record is not None and record.running:
        fail(f"a mesh named `{name}` is running already", f"end it with: weft down {name}\nor give another --name")
    tell_of_killed(name)
    with _open_log(name) as log:
        process = subprocess.Popen(
            [
                *WEFT,
                "up",
                str(directory.absolute()),
                "--name",
                name,
                "--no-live",
                *_flags(trust or Trust(), history, egress=egress),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = _wait(process, name, patience, log)
    hint = f"look with: weft ps, weft logs WORKLOAD, or: cat {output_file(name)}"
    if status is None:
        fail(f"the mesh has not responded within {patience:g} s; it continues to run", hint)
    wrong = _what_is_wrong(status, patience)
    problems = _problem_counts(status)
    if wrong:
        for what in wrong[:-1]:
            say(f"error: {what}")
        fail(f"{wrong[-1]}; the mesh continues to run", "\n".join((hint, problems)))
    if not status.objects:
        say(no_objects(status))
    say(f"mesh {name} runs (pid {process.pid}): weft status, weft logs, weft exec; weft down {name} ends it")
    if problems:
        say(problems)


def _flags(trust: Trust, history: Path | None = None, *, egress: bool = False) -> list[str]:
    ca = ["--ca", str(trust.ca)] if trust.ca is not None else []
    past = ["--history", str(history)] if history is not None else []
    way_out = ["--egress"] if egress else []
    return [*ca, *past, *way_out, "--certificate-ttl", f"{trust.certificate_ttl.total_seconds():.3f}s"]


def _open_log(name: str) -> FileIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        base_directory().mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last running mesh may just have removed the directory
            file = os.fdopen(os.open(output_file(name), flags, 0o600), "r+b", buffering=0)
            os.fchmod(file.fileno(), 0o600)
            return file


def _wait(process: subprocess.Popen[bytes], name: str, patience: float, log: FileIO) -> MeshStatus | None:
    """Wait until the mesh has settled (`_is_over`), or no further pod has become ready for `patience` seconds, and
    print what happens meanwhile. If `process`, which runs the mesh, ends, the command fails with its output from
    `log`. Return the last status; None if the mesh has never responded."""
    status: MeshStatus | None = None
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            output_file(name).unlink(missing_ok=True)
            log.seek(0)  # this file descriptor stays valid after the file is removed
            words = log.read().decode(errors="replace").strip()
            if words.startswith("error: "):  # `weft up` has printed why it could not start
                say(words)
                raise Exit(1)
            hint = "watch it start: weft up without --detach"
            fail(f"the mesh ended with exit code {process.returncode}" + (words and f":\n{words}"), hint)
        try:
            before, status = status, fetch_status(name)
        except LocalError:
            time.sleep(0.1)
            continue
        for line in changes(before, status):
            say(line)
        if before is None or _settled(status) > _settled(before):
            deadline = time.monotonic() + patience
        if _is_over(status):
            return status
        time.sleep(0.2)
    return status


def _is_over(status: MeshStatus) -> bool:
    """Return whether the mesh has settled: the files are read and checked, all pods exist, none is still starting, and
    the proxies of callers have acknowledged their config. A failed job counts as settled."""
    here = all(len(workload.pods) >= workload.replicas for workload in status.workloads)
    return status.objects is not None and status.is_checked and here and not _unready(status) and status.is_told


def _what_is_wrong(status: MeshStatus, patience: float) -> list[str]:
    """Return what is wrong with a mesh of this `status`, one line each: failed pods, files not read, missing pods, and
    in one line all pods that are not ready yet. `patience`: the seconds that were waited, for the text."""
    failed = [pod for pod in status.pods if pod.phase is PodPhase.FAILED]
    wrong = [f"{pod.name} failed: {pod.message}" for pod in failed]
    if status.objects is None:
        wrong.append(f"after {patience:g} s the files have not been read")
    lacking = [each for each in status.workloads if len(each.pods) < each.replicas]
    if status.lacks_workloads:
        wrong.append(what_lacks(status))
    wrong += [f"{each.name} has {len(each.pods)} of {each.replicas} pods" for each in lacking]
    unready = _unready(status)
    if unready:
        named = ", ".join(_state(pod) for pod in unready[:_MOST_NAMED])
        more = f" and {len(unready) - _MOST_NAMED} more" if len(unready) > _MOST_NAMED else ""
        wrong.append(f"after {patience:g} s not ready: {named}{more}")
    return wrong


def _settled(status: MeshStatus) -> int:
    return sum(pod.phase in (*_WELL, PodPhase.FAILED) for pod in status.pods)


def _unready(status: MeshStatus) -> list[PodStatus]:
    return [pod for pod in status.pods if pod.phase not in (*_WELL, PodPhase.FAILED)]


def _state(pod: PodStatus) -> str:
    return f"{pod.name} ({pod.phase}{pod.message and f': {pod.message}'})"


def _problem_counts(status: MeshStatus) -> str:
    """Return the numbers of errors and warnings of the mesh as text. Each problem was printed before, but may have
    scrolled out of view."""
    severities = [problem.severity for problem in status.problems]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    parts = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    return f"{', '.join(parts)}: see `weft status --mesh {status.name}`" if parts else ""
