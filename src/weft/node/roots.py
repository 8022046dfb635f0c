"""Reads the roots that verify the CA from a file, and watches the file for changes.

On Kubernetes the file comes from a ConfigMap, which kubelet replaces in place. Rule: while the file is missing or
invalid, the last roots stay in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

log = logging.getLogger("weft.node.roots")

LOOK = 2.0  # seconds between reads; polling, because kubelet may replace the whole directory
_MOST_BYTES = 1 << 20


def read_roots(file: Path) -> tuple[str, ...]:
    """Return the file's certificates, one PEM text each. Raises OSError or ValueError."""
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES)
    return tuple(each.public_bytes(Encoding.PEM).decode() for each in x509.load_pem_x509_certificates(text))


async def watch_roots(
    file: Path, known: tuple[str, ...] = (), *, look: float = LOOK
) -> AsyncGenerator[tuple[str, ...], None]:
    """Read the file every `look` seconds, and yield its roots whenever they differ from the last ones (at first from
    `known`), without end."""
    logged = ""
    while True:
        try:
            roots = read_roots(file)
        except (OSError, ValueError) as error:
            if str(error) != logged:
                logged = str(error)
                log.error("%s cannot be read as certificates: %s; the last roots stay in force", file, error)
        else:
            logged = ""
            if roots != known:
                known = roots
                yield roots
        await asyncio.sleep(look)
