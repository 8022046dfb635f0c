"""The roots by which the CA is known, in a file that somebody else keeps: read, and read again when it has changed.

On Kubernetes it is a ConfigMap, which kubelet replaces in place. Rule: a file that is away or broken takes nothing
away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

log = logging.getLogger("weft.node.roots")

LOOK = 2.0  # seconds; one small file, whose directory may be replaced as a whole
_MOST_BYTES = 1 << 20


def read_roots(file: Path) -> tuple[str, ...]:
    """Each in PEM of its own. Raises OSError or ValueError."""
    with file.open("rb") as opened:
        text = opened.read(_MOST_BYTES)
    return tuple(each.public_bytes(Encoding.PEM).decode() for each in x509.load_pem_x509_certificates(text))


async def watch_roots(
    file: Path, known: tuple[str, ...] = (), *, look: float = LOOK
) -> AsyncGenerator[tuple[str, ...], None]:
    """Whenever they are others than the last ones, for ever."""
    said = ""
    while True:
        try:
            found = read_roots(file)
        except (OSError, ValueError) as error:
            if str(error) != said:
                said = str(error)
                log.error("%s cannot be read as certificates: %s; the roots of before stay", file, error)
        else:
            said = ""
            if found != known:
                known = found
                yield found
        await asyncio.sleep(look)
