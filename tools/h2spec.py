"""Builds h2spec, the conformance test of HTTP/2, from the Go module proxy into the cache outside the checkout, and runs
it. `ensure` builds it if it is missing; `python -m tools.h2spec` does so from a shell."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.go_program import compile_program

from tools.kube import build, go

PACKAGE = "github.com/summerwind/h2spec"
VERSION = "v2.2.1+incompatible"  # the newest that the module proxy has under a version
# Its module names no versions of its libraries.
LIBRARIES = {
    "github.com/fatih/color": "v1.19.0",
    "github.com/spf13/cobra": "v1.10.2",
    "golang.org/x/net": "v0.62.0",
}
_PATIENCE = 2  # seconds that a test case waits for a frame
_CASE = re.compile(r'<testcase package="([^"]*)" classname="([^"]*)"[^>]*>(.*?)</testcase>', re.DOTALL)
_FAILURE = re.compile(r"<(?:failure|error)>(.*)</(?:failure|error)>", re.DOTALL)


class Case(NamedTuple):
    number: str  # such as `http2/6.9.1/2`
    title: str


def path() -> Path:
    return build.cache().parent / f"h2spec-{VERSION.partition('+')[0]}"


def ensure(*, tell: Callable[[str], None]) -> None:
    if not path().exists():
        path().parent.mkdir(parents=True, exist_ok=True)
        compile_program(f"{PACKAGE}/cmd/h2spec", path(), name="h2spec", module=module(), tell=tell)


def module() -> str:
    required = "".join(f"\t{name} {version}\n" for name, version in {PACKAGE: VERSION, **LIBRARIES}.items())
    return f"module weft/h2spec\n\ngo 1.26.0\n\nrequire (\n{required})\n"


def run(
    host: str, port: int, *, cases: Sequence[str] = (), before: Sequence[str] = (), wait: int = _PATIENCE
) -> Mapping[Case, str]:
    """Run the test cases against a server without TLS. Return for each case why it failed; empty if it passed or was
    skipped. `cases`: such as `http2/6.9.1/2`; empty for all, strict ones included. `before`: words before the command,
    such as those of nsenter."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        flags = ["--strict", "--timeout", str(wait), "--host", host, "--port", str(port), "--junit-report", str(report)]
        done = subprocess.run([*before, path(), *flags, *cases], capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(f"h2spec wrote no report:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return read_report(report.read_text(encoding="utf-8", errors="replace"))


def read_report(text: str) -> Mapping[Case, str]:
    """Read h2spec's report. It is not XML, because it contains bytes of frames as they were received."""
    results: dict[Case, str] = {}
    number: Counter[str] = Counter()
    for package, title, content in _CASE.findall(text):
        number[package] += 1
        failure = _FAILURE.search(content)
        why = " ".join(failure[1].split()) or "failed" if failure else ""
        results[Case(f"{package}/{number[package]}", html.unescape(title))] = why
    return results


def main() -> int:
    try:
        ensure(tell=lambda line: print(line, flush=True))
    except (build.BuildFailed, go.NoGo) as failed:
        print(failed, file=sys.stderr)
        return 1
    print(f"h2spec {VERSION} is {path()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
