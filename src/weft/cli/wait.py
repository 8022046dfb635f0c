"""`weft wait`: what kubelet runs right after it has started a sidecar, so that the application starts only when the
sidecar is ready. As long as this runs, kubelet does nothing else for the pod: it neither ends it nor shows its logs.
Hence not for ever; what is said at the end stands in the pod's status, and kubelet tries again."""

from __future__ import annotations

import sys

_HELP = """Usage: weft wait [TIME]

  End when the Envoy of this pod is ready; fail after TIME (60s).

  Example: weft wait 10s
"""


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP, end="")
        return 0
    from weft.envoy.drain import wait_until_ready
    from weft.inject.duration import seconds_of

    most = seconds_of(arguments[0]) if arguments else 60.0
    if most is None or len(arguments) > 1:
        print(f"error: `{' '.join(arguments)}` is not one time\nhint: for example: weft wait 10s", file=sys.stderr)
        return 2
    why = wait_until_ready(most=most)
    if not why:
        return 0
    print(
        f"error: the proxy is not ready after {most:g} s: {why}\n"
        "hint: kubectl logs POD -c istio-proxy; kubectl -n istio-system get pods",
        file=sys.stderr,
    )
    return 1
