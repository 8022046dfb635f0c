"""`weft wait`: what kubelet runs right after it has started a sidecar that is not a native one, so that the application
starts only when the sidecar is ready."""

from __future__ import annotations

import sys

_HELP = """Usage: weft wait [TIME]

  End when the Envoy of this pod is ready; fail after TIME (10m).

  Example: weft wait 60s
"""


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP, end="")
        return 0
    from weft.envoy.drain import wait_until_ready
    from weft.inject.duration import seconds_of

    most = seconds_of(arguments[0]) if arguments else 600.0
    if most is None or len(arguments) > 1:
        print(f"error: `{' '.join(arguments)}` is not one time\nhint: for example: weft wait 60s", file=sys.stderr)
        return 2
    if wait_until_ready(most=most):
        return 0
    print(
        f"error: Envoy is not ready after {most:g} s\nhint: see its log: kubectl logs POD -c istio-proxy",
        file=sys.stderr,
    )
    return 1
