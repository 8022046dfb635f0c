"""Builds the command line of an Envoy and writes its bootstrap file. The caller decides in which network namespace
and as which user the Envoy runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.envoy.bootstrap import Bootstrap, render

BOOTSTRAP_FILE = "envoy.json"


class EnvoyCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How to start an Envoy: `argv`, `environment`, `working_directory`, and the paths that its user must be able to
    read (`visible`)."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    working_directory: str
    visible: tuple[str, ...]


def prepare(
    bootstrap: Bootstrap, binary: Path, directory: Path, *, log_level: str = "warning", drain_seconds: int = 5
) -> EnvoyCommand:
    """Write the bootstrap into the pod's `directory`, and return the command that starts the Envoy at `binary` with it.
    `drain_seconds`: how long Envoy drains connections of a replaced listener.

    The bootstrap is a file and not an argument, because every user of a machine can read the arguments of every
    process.
    """
    file = directory / BOOTSTRAP_FILE
    file.write_text(render(bootstrap), encoding="utf-8")
    file.chmod(0o644)
    chosen = options(log_level=log_level, drain_seconds=drain_seconds)
    return EnvoyCommand(
        argv=(str(binary), "--config-path", str(file), *chosen),
        environment={},
        working_directory=str(directory),
        visible=(str(binary.parent), str(directory)),
    )


def options(
    *,
    log_level: str = "warning",
    # The logger `misc` warns about every deprecated field of Istio's configuration, again for each listener of each
    # proxy. A reader of the log cannot change these fields.
    component_log_level: str = "misc:error",
    # Worker threads. One needs less memory, and one pod among many does not need every core. 0: one per core.
    concurrency: int = 1,
    drain_seconds: int = 5,
) -> tuple[str, ...]:
    """Return the command line options of every Envoy, except those that select its bootstrap. `drain_seconds`: as for
    `prepare`. `concurrency`: the number of worker threads."""
    return (
        *(("--concurrency", str(concurrency)) if concurrency else ()),
        # Hot restart uses shared memory with a fixed id, so several Envoys on one machine would collide.
        "--disable-hot-restart",
        *("--drain-time-s", str(drain_seconds)),
        # Connections of a replaced listener are closed after their next response, not at a random time within the drain
        # time: so a saved policy applies from the second request on.
        *("--drain-strategy", "immediate"),
        *("--log-level", log_level),
        *(("--component-log-level", component_log_level) if component_log_level else ()),
        # Operators read the access log right after sending a request; Envoy's default of 10 s is too long.
        *("--file-flush-interval-msec", "500"),
        *("--log-format", "%Y-%m-%dT%T.%e %l envoy %n: %v"),
    )
