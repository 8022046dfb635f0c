"""Configures logging: one line per event on standard error, for users. Results of commands are printed to standard
output."""

from __future__ import annotations

import logging
import sys


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger("weft")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
