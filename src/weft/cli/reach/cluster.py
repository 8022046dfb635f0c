"""A client of the cluster that the flags `--kubeconfig` and `--context` name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.kube.client import Client


def client(kubeconfig: Path | None, context: str | None) -> Client:
    from weft.kube.client import Client
    from weft.kube.config import load

    return Client(load(kubeconfig, context))
