"""`weft wait`: the postStart hook of a sidecar. It waits until the sidecar is ready and, if the node's agent sets up
the redirect, until the redirect is in place; the application starts only then. While the hook runs, kubelet can neither
stop the pod nor show its logs, so the hook has a time limit. If the hook fails, its error is shown in the pod's status,
and kubelet restarts the sidecar."""

from __future__ import annotations

import contextlib
import io
import os
import sys

_HELP = """Usage: weft wait [TIME] [--redirect ARGUMENTS]

  Wait until the Envoy of this pod is ready; fail after TIME (60s).

    --redirect ARGUMENTS  before that, have the node's agent redirect this pod's traffic to its proxy, or fail. All
                          arguments after this option are those of `weft redirect`

  Example: weft wait 10s
"""
# The content of this file when a container ends is the container's message. kubelet reports the output of a hook only
# for containers that fail, and an Envoy that is stopped exits normally.
_LAST_WORDS = "/dev/termination-log"


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP, end="")
        return 0
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status = _run(arguments)
    print(errors.getvalue(), end="", file=sys.stderr)
    if status:
        _leave(errors.getvalue())
    return status


def _run(arguments: list[str]) -> int:
    from weft.envoy.drain import wait_until_ready
    from weft.inject.duration import seconds_of

    times, wanted = _parted(arguments)
    most = seconds_of(times[0]) if times else 60.0
    if most is None or len(times) > 1:
        print(f"error: `{' '.join(times)}` is not one duration\nhint: for example: weft wait 10s", file=sys.stderr)
        return 2
    if wanted is not None:
        from weft.cli.pod import redirect

        if status := redirect.have_redirected(wanted):
            return status
    why = wait_until_ready(most=most)
    if not why:
        return 0
    print(
        f"error: the proxy is not ready after {most:g} s: {why}\n"
        "hint: kubectl logs POD -c istio-proxy; kubectl -n istio-system get pods",
        file=sys.stderr,
    )
    return 1


def _parted(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Split the arguments at `--redirect`. Return the arguments before it, which are those of `weft wait`, and the
    arguments after it, which are those of the redirect; None for the latter if there is no `--redirect`."""
    if "--redirect" not in arguments:
        return arguments, None
    place = arguments.index("--redirect")
    return arguments[:place], arguments[place + 1 :]


def _leave(words: str) -> None:
    """Write `words` to the container's termination log, whose content kubelet shows in the pod's status. Do nothing
    outside a container, where that file does not exist."""
    with contextlib.suppress(OSError):
        last = os.open(_LAST_WORDS, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(last, words.encode())
        finally:
            os.close(last)
