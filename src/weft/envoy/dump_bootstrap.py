"""Reads the bootstrap section of a dump, and the versions of Envoy and of the mesh in it."""

from __future__ import annotations

from typing import Any

from weft.envoy.dump import BOOTSTRAP, Dump, at, number, text

_BUILD = (("build.label", "-"), ("revision.status", "/"), ("build.type", "/"), ("ssl.version", "/"))


def bootstrap(dump: Dump) -> dict[str, Any]:
    """Return the bootstrap section of the dump, unchanged."""
    return dump.section(BOOTSTRAP)


def versions(section: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the versions of Istio, of its proxy and of Envoy in a dump's bootstrap `section`, each as (title,
    version). Unknown versions are left out."""
    node = at(section, "bootstrap", "node")
    proxy = text(node, "metadata", "ISTIO_PROXY_SHA")
    versions = [
        ("Istio Version:", text(node, "metadata", "ISTIO_VERSION")),
        ("Istio Proxy Version:", proxy.partition(":")[2] or proxy),
        ("Envoy Version:", _envoy(at(node, "user_agent_build_version"))),
    ]
    return [(title, version) for title, version in versions if version]


def _envoy(build: Any) -> str:
    parts = [number(build, "version", part) for part in ("major_number", "minor_number", "patch")]
    shown = ".".join(map(str, parts))
    for field, separator in _BUILD:
        if value := text(build, "metadata", field):
            shown += separator + value
    return shown
