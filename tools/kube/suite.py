"""Runs the tests that need Kubernetes as two pytest processes in parallel: tests on a whole cluster, which mostly
wait for pods, and tests that need only an API server. `make test-kube` runs it; the exit code is 0 if both
succeed.

The output of the cluster tests is shown while they run, that of the other tests when both have ended. Ctrl-C or
SIGTERM ends both, and both clean up.
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
    """Run two commands in parallel. Return the first exit code that is not 0, or 0."""
    with tempfile.TemporaryFile() as output:
        halves = [subprocess.Popen(first), subprocess.Popen(second, stdout=output, stderr=subprocess.STDOUT)]

        def stop(*_: object) -> None:
            for half in halves:
                half.send_signal(signal.SIGINT)

        # The terminal sends Ctrl-C to both processes; a second SIGINT from here would end them before they have cleaned
        # up.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, stop)
        codes = [half.wait() for half in halves]
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return next(filter(None, codes), 0)


def main() -> int:
    pytest = (sys.executable, "-m", "pytest", *sys.argv[1:])
    return run((*pytest, *CLUSTER), (*pytest, *ALONE))


if __name__ == "__main__":
    sys.exit(main())
