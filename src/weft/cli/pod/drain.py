"""`weft drain`: kubelet runs it in a sidecar's container before it stops the container."""

from __future__ import annotations

import sys

_HELP = """Usage: weft drain [--gateway] [--until-idle] [TIME]

  Send the callers of this pod elsewhere, and end when its Envoy may be ended: after TIME (5s), and once no request and
  no other stream is under way. Kubelet ends it with the pod's grace period. What runs before a sidecar stops.

    --gateway     its Envoy is a gateway, and all that it listens for comes in
    --until-idle  also wait until nobody is connected any more (EXIT_ON_ZERO_ACTIVE_CONNECTIONS in Istio)

  Example: weft drain 5s
"""


def run(arguments: list[str]) -> int:
    if "-h" in arguments or "--help" in arguments:
        print(_HELP, end="")
        return 0
    from weft.envoy.drain import drain
    from weft.inject.duration import seconds_of

    times = [each for each in arguments if each not in ("--until-idle", "--gateway")]
    least = seconds_of(times[0]) if times else 5.0
    if least is None or len(times) > 1:
        print(f"error: `{' '.join(times)}` is not one time\nhint: for example: weft drain 5s", file=sys.stderr)
        return 2
    drain(least=least, until_idle="--until-idle" in arguments, gateway="--gateway" in arguments, tell=_say)
    return 0


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
