"""Commands as a person types them, and calls as an application makes them, in a mesh that is broken on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

from tools.troubleshooting import Broken

_CALLS = """
import json, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None
ends = {"[Errno -": "name", "RemoteDisconnected": "cut", "ConnectionReset": "cut"}
opener = urllib.request.build_opener(Stay)
for url in sys.argv[1:]:
    try:
        end = str(opener.open(url, timeout=10).status)
    except urllib.error.HTTPError as error:
        end = str(error.code)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        end = next((word for begin, word in ends.items() if begin in said), said)
    print(json.dumps([url, end]))
"""


async def weft(command: str, directory: Path) -> str:
    """Run a command; returns its stdout and stderr together."""
    words = shlex.split(command)
    assert words[0] == "weft"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft.cli", *words[1:]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=directory,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return said.decode()


async def ends(caller: str, urls: list[str], directory: Path) -> dict[str, str]:
    """How calls end: the status, `name` if the host does not resolve, or `cut` without a response."""
    said = await weft(shlex.join(["weft", "exec", caller, "--", "python3", "-c", _CALLS, *urls]), directory)
    return dict(map(json.loads, said.splitlines()))


def missing(case: Broken, answers: dict[str, str]) -> str:
    """The expected words that are missing in the output of the case's commands; empty if all are there."""
    for typed in case.typed:
        for words in typed.words:
            if not case.pattern(words).search(answers[typed.command]):
                return f"{typed.command}: no `{words}` in\n{answers[typed.command]}"
    return ""
