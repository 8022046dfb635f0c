"""Reads the values of an installation from files (`-f`), assignments (`--set`) and `--revision`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.print.output import fail

if TYPE_CHECKING:
    from weft.install.values import Values


def chosen(files: Sequence[str], assignments: Sequence[str], revision: str) -> Values:
    """Return the installation's values from the values `files` and the `--set` `assignments`, overridden by
    `revision` unless it is empty. The injector's settings among them are parsed here in the same way as in the
    cluster, so that errors show before anything is installed."""
    import msgspec

    from weft.inject.settings import read
    from weft.install.injector import injector_settings
    from weft.install.overrides import read_values

    texts = [(name, _text(name)) for name in files]
    values = read_values(texts, [*assignments, *([f"revision={revision}"] if revision else [])])
    read(msgspec.json.encode(injector_settings(values)), named="injection.settings")
    return values


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{name} cannot be read: {getattr(error, 'strerror', '') or error}", "give a file of YAML: -f values.yaml")
