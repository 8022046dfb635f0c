"""Runs the tests that need Kubernetes, in two halves at once: those on a whole cluster, which mostly wait for pods, and
those that have enough of an API server alone. `make test-kube` comes in; both halves' words and one exit code leave.

The cluster's half is heard as it goes, the other one when both are over. Who is stopped stops both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

CLUSTER = ("tests/cluster",)
ALONE = ("-m", "kube", "--ignore=tests/cluster")


def run(first: Sequence[str], second: Sequence[str]) -> int:
    """Two commands at once; the first code that is not 0."""
    with tempfile.TemporaryFile() as said, subprocess.Popen(second, stdout=said, stderr=subprocess.STDOUT) as beside:
        try:
            code = subprocess.run(first, check=False).returncode
            other = beside.wait()
        except BaseException:
            beside.terminate()
            raise
        finally:
            beside.wait()
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    return code or other


def main() -> int:
    pytest = (sys.executable, "-m", "pytest", *sys.argv[1:])
    try:
        return run((*pytest, *CLUSTER), (*pytest, *ALONE))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
