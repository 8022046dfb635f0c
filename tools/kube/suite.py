"""Runs the tests that need Kubernetes, in two halves at once: those on a whole cluster, which mostly wait for pods, and
those that have enough of an API server alone. `make test-kube` comes in; both halves' words and one exit code leave.

The cluster's half is heard as it goes, the other one when both are over. Who stops it stops both, and both clean up.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

CLUSTER = ("tests/on_cluster",)
ALONE = ("-m", "kube", "--ignore=tests/on_cluster")


def run(first: Sequence[str], second: Sequence[str]) -> int:
    """Two commands at once; the first code that is not 0."""
    with tempfile.TemporaryFile() as said:
        halves = [subprocess.Popen(first), subprocess.Popen(second, stdout=said, stderr=subprocess.STDOUT)]

        def stop(*_: object) -> None:
            for half in halves:
                half.send_signal(signal.SIGINT)

        # Ctrl-C reaches both by itself; a second one would end them before they have cleaned up.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, stop)
        codes = [half.wait() for half in halves]
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return next(filter(None, codes), 0)


def main() -> int:
    pytest = (sys.executable, "-m", "pytest", *sys.argv[1:])
    return run((*pytest, *CLUSTER), (*pytest, *ALONE))


if __name__ == "__main__":
    sys.exit(main())
