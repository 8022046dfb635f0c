"""`weft drain`: the preStop hook of the proxy's container. It drains the pod's Envoy, and ends when Envoy may stop."""

from __future__ import annotations

import sys

_HELP = """Usage: weft drain [--gateway] [--until-idle] [TIME]

  Runs before a sidecar stops. Makes the callers of this pod use other pods, and ends when the pod's Envoy may stop:
  after TIME (5s), and once no request and no other stream is in progress. The pod's grace period limits the wait.

    --gateway     this pod's Envoy is a gateway: all of its listeners are inbound
    --until-idle  also wait until no client is connected (EXIT_ON_ZERO_ACTIVE_CONNECTIONS in Istio)

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
        print(f"error: `{' '.join(times)}` is not one duration\nhint: for example: weft drain 5s", file=sys.stderr)
        return 2
    drain(least=least, until_idle="--until-idle" in arguments, gateway="--gateway" in arguments, tell=_say)
    return 0


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
