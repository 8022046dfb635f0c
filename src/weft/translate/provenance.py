"""Writes the source objects of a resource into its metadata: `weft.sources` for weft's own diagnosis, `istio.config`
for istioctl.

The metadata of clusters and listeners names only the objects: replacing a cluster or listener drains connections, and a
moved line in a file must not do that. Replacing routes drains nothing, so their metadata also has the version, file and
line.
"""

from __future__ import annotations

from functools import lru_cache

from envoy.config.core.v3.base_pb2 import Metadata

from weft.model.names import ObjectKey, Origin

_PATHS = {
    "VirtualService": "/apis/networking.istio.io/v1/namespaces/{namespace}/virtual-service/{name}",
    "DestinationRule": "/apis/networking.istio.io/v1/namespaces/{namespace}/destination-rule/{name}",
}


def keys(*origins: Origin | None) -> tuple[ObjectKey, ...]:
    """Return the keys of the objects that have these `origins`, each key once, in order. None among the origins is
    skipped."""
    return tuple(dict.fromkeys(origin.key for origin in origins if origin is not None))


def of_objects(sources: tuple[ObjectKey, ...]) -> Metadata:
    return Metadata.FromString(_of_objects(sources))


def of_route(origins: tuple[Origin, ...], line: int = 0) -> Metadata:
    """Return the metadata of a route. `line` is the line of the route itself, in the file of the first origin."""
    return Metadata.FromString(_of_route(origins, line))


# The functions below cache bytes, not messages: a caller may modify the message that it gets.


@lru_cache(maxsize=65536)
def _of_objects(sources: tuple[ObjectKey, ...]) -> bytes:
    result = Metadata()
    if sources:
        listed = result.filter_metadata["weft"].get_or_create_list("sources")
        for source in sources:
            listed.add_struct().update({"kind": source.kind, "namespace": source.namespace, "name": source.name})
        _for_istioctl(result, sources)
    serialized: bytes = result.SerializeToString()
    return serialized


@lru_cache(maxsize=65536)
def _of_route(origins: tuple[Origin, ...], line: int) -> bytes:
    result = Metadata()
    if origins:
        listed = result.filter_metadata["weft"].get_or_create_list("sources")
        for position, origin in enumerate(origins):
            fields = {"kind": origin.key.kind, "namespace": origin.key.namespace, "name": origin.key.name}
            fields |= {"version": origin.version} if origin.version else {}
            entry = listed.add_struct()
            entry.update(fields)
            if origin.file:
                entry.update({"file": origin.file, "line": (line if position == 0 else 0) or origin.line})
        _for_istioctl(result, tuple(origin.key for origin in origins))
    serialized: bytes = result.SerializeToString()
    return serialized


def _for_istioctl(metadata: Metadata, sources: tuple[ObjectKey, ...]) -> None:
    """Add the first VirtualService or DestinationRule among the sources as `istio.config`: istioctl reads only one
    object."""
    for source in sources:
        if path := _PATHS.get(source.kind):
            metadata.filter_metadata["istio"].update(
                {"config": path.format(namespace=source.namespace, name=source.name)}
            )
            return
