"""The command line of one Envoy, and the file it reads. Whoever starts it decides where and as whom."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.envoy.bootstrap import Bootstrap, render

BOOTSTRAP_FILE = "envoy.json"


class EnvoyCommand(msgspec.Struct, frozen=True, kw_only=True):
    """`argv` and `environment` to start, and the paths that must be reachable for the user it runs as."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    working_directory: str
    visible: tuple[str, ...]


def prepare(
    bootstrap: Bootstrap, binary: Path, directory: Path, *, log_level: str = "warning", drain_seconds: int = 5
) -> EnvoyCommand:
    """Write the bootstrap into the pod's own directory and say how to start Envoy with it.

    A file and not an argument: every user of a machine can read every process's arguments.
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
    # `misc` warns of each field of Istio's configuration that Envoy would rather have under another name, again for
    # every listener of every proxy: nothing that a reader of the log could change.
    component_log_level: str = "misc:error",
    # One worker: less memory, and one pod of many has no use for each core. 0: one for each.
    concurrency: int = 1,
    drain_seconds: int = 5,
) -> tuple[str, ...]:
    """What every sidecar is started with, wherever its bootstrap comes from."""
    return (
        *(("--concurrency", str(concurrency)) if concurrency else ()),
        # Hot restart shares memory by number, and the many Envoys of one machine would meet there.
        "--disable-hot-restart",
        *("--drain-time-s", str(drain_seconds)),
        # Whoever is connected under rules that have been replaced is sent away with the next answer, and not by chance
        # within the time above: a policy that is saved holds from the second request on.
        *("--drain-strategy", "immediate"),
        *("--log-level", log_level),
        *(("--component-log-level", component_log_level) if component_log_level else ()),
        # An access log is read by a person who has just sent a request: Envoy's own 10 s are too long to wait.
        *("--file-flush-interval-msec", "500"),
        *("--log-format", "%Y-%m-%dT%T.%e %l envoy %n: %v"),
    )
