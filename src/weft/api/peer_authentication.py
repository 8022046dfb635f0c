"""Reads Istio's PeerAuthentication: whether workloads accept mutual TLS, plaintext or both. A PeerAuthentication that
is rejected and has no earlier valid version is replaced by STRICT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.api.metadata import Meta, selector
from weft.api.reader import Fields
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.value import Value

_MODES = {**{mode.value: mode for mode in TlsMode}, "UNSET": None}


def read_peer_authentication(root: Fields, meta: Meta) -> tuple[PeerAuthentication, ...]:
    spec = root.fields("spec")
    if spec is None:
        return (PeerAuthentication(meta.name, meta.namespace, created=meta.created, origin=meta.origin),)
    spec.outdented("mtls", ("mode",))
    chosen = selector(spec, "selector", "matchLabels")
    if spec.report.is_wrong((*spec.path, "selector")):
        chosen = ()  # the STRICT replacement then applies to the whole namespace
    ports = _ports(spec)
    if spec.has("portLevelMtls") and not chosen:
        spec.error(
            "portLevelMtls",
            "`portLevelMtls` needs a `selector`: a port belongs to a workload, not to a namespace or the mesh",
            "select the workload",
        )
    return (
        PeerAuthentication(
            name=meta.name,
            namespace=meta.namespace,
            selector=chosen or (),
            mode=_mode(spec.fields("mtls")),
            ports=ports,
            created=meta.created,
            origin=meta.origin,
        ),
    )


def strict(values: Sequence[Value], meta: Meta) -> tuple[Value, ...]:
    """Return what replaces a rejected PeerAuthentication: STRICT at every port, for the workloads that it selects, or
    for its whole namespace if the selector cannot be parsed. `values`: what could be parsed of the rejected object.
    `meta`: its metadata."""
    read = next((value for value in values if isinstance(value, PeerAuthentication)), None)
    return (
        PeerAuthentication(
            name=meta.name,
            namespace=meta.namespace,
            selector=read.selector if read else (),
            mode=TlsMode.STRICT,
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _mode(fields: Fields | None) -> TlsMode | None:
    return None if fields is None else _MODES[fields.choice("mode", _MODES, default="UNSET")]


def _ports(spec: Fields) -> tuple[tuple[int, TlsMode | None], ...]:
    raw = spec.raw("portLevelMtls")
    if not isinstance(raw, Mapping):
        spec.fields("portLevelMtls")  # reports the error if the field is not a mapping
        return ()
    fields = spec.embedded("portLevelMtls", {str(name): body for name, body in raw.items()})
    modes: dict[int, TlsMode | None] = {}
    for name in map(str, raw):
        number = int(name) if name.isdecimal() and len(name) <= 5 else 0
        if not 1 <= number <= 65_535:
            fields.ignored(name)
            fields.error(name, f"`{name[:80]}` is not a port", "use the number of a port of the workload")
            continue
        if number in modes:
            fields.error(name, f"port {number} is listed twice")
        modes[number] = _mode(fields.fields(name))
    if not raw:
        spec.error("portLevelMtls", "`portLevelMtls` is empty", "leave it out")
    return tuple(sorted(modes.items()))
