"""A pod without privileges requests its redirect: `weft redirect` as a process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from weft.model.proxy import PROXY_GID, PROXY_UID, REDIRECT_SOCKET
from weft.netns import namespace as netns
from weft.netns.process import Spawn, spawn
from weft.netns.view import Laid, View
from weft.node import redirect

ARGUMENTS = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021")
SOURCE = Path(redirect.__file__).parents[2]


async def ask(network, volume, *arguments, uid=PROXY_UID, gid=PROXY_GID, timeout="10", seen=None):
    """Run `weft redirect` in the pod, which sees its volume at the directory `seen`. Return the exit code and the
    output."""
    seen = seen or volume.parent / "seen"
    process = await spawn(
        Spawn(
            argv=(
                *(sys.executable, "-m", "weft.cli", "redirect", "--timeout", timeout),
                *("--socket", str(seen / REDIRECT_SOCKET), *arguments),
            ),
            namespace=network,
            uid=uid,
            gid=gid,
            environment={"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            view=View(
                visible=(str(SOURCE), sys.prefix, sys.base_prefix, str(seen)),
                files=(Laid(str(volume), str(seen)),) if volume.exists() else (),
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    )
    async with asyncio.timeout(60):
        said = await process.stdout.read()
        return await process.wait(), said.decode()


def rules(network) -> str:
    return netns.run_in(
        network,
        lambda: subprocess.run(["iptables-save", "-t", "nat"], capture_output=True, text=True, check=True).stdout,
    )
