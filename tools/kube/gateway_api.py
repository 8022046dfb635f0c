"""Provides the Gateway API's CustomResourceDefinitions for tests. They come from the Gateway API's Go module,
fetched from the module proxy and cached. They are not part of this repository."""

from __future__ import annotations

import io
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tools.kube import build, go

VERSION = "v1.6.0"
SUM = "h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE="
_FOLDER = f"sigs.k8s.io/gateway-api@{VERSION}/config/crd/experimental/"  # the experimental channel has all fields
_KINDS = (
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
)


class NoDefinitions(Exception):
    """The definitions are not in the cache, and no module proxy has them."""


def definitions() -> list[dict[str, Any]]:
    kept = build.cache().parent / f"gateway-api-{VERSION}.zip"
    if not kept.exists():
        _fetch(kept)
    with zipfile.ZipFile(kept) as archive:
        return [yaml.safe_load(archive.read(f"{_FOLDER}gateway.networking.k8s.io_{plural}.yaml")) for plural in _KINDS]


def _fetch(target: Path) -> None:
    reasons = []
    for proxy in go.proxies():
        address = f"{proxy}/sigs.k8s.io/gateway-api/@v/{VERSION}.zip"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                content = answer.read()
        except OSError as failed:
            reasons.append(f"{address}: {failed}")
            continue
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if go.sum_of(archive) != SUM:
                raise NoDefinitions(f"{address} is not {VERSION}: its sum is {go.sum_of(archive)}, not {SUM}")
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_suffix(".new")
        new.write_bytes(content)
        new.rename(target)
        return
    raise NoDefinitions("; ".join(reasons) or "GOPROXY contains no module proxy")
