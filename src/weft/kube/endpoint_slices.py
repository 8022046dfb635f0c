"""Converts Kubernetes EndpointSlices into EndpointSlices of the model. Unset conditions are read as Kubernetes
specifies: ready, serving if ready, not terminating."""

from __future__ import annotations

from sys import intern

from weft.kube.objects import EndpointConditions, Slice
from weft.kube.objects import SliceEndpointObject as WrittenEndpoint
from weft.model.endpoint_slice import EndpointSlice, SliceEndpoint
from weft.model.names import ObjectKey, Origin

_CONTROLLER = "endpointslice-controller.k8s.io"
_UNKNOWN = EndpointConditions()


def slice_of(written: Slice) -> EndpointSlice | None:
    """Return the EndpointSlice of the model for the Kubernetes object `written`; None if the slice has no Service, or
    if its addresses are host names."""
    labels, namespace = written.metadata.labels, intern(written.metadata.namespace)
    if labels is None or not labels.service or written.address_type not in ("IPv4", "IPv6"):
        return None
    return EndpointSlice(
        name=written.metadata.name,
        namespace=namespace,
        service=intern(labels.service),
        ports=tuple(
            (intern(port.name or ""), port.port)
            for port in written.ports or ()
            if port.port and port.protocol in (None, "TCP")
        ),
        endpoints=tuple(_endpoint(each, namespace) for each in written.endpoints or () if each.addresses),
        managed=labels.managed_by == _CONTROLLER,
        origin=Origin(ObjectKey("EndpointSlice", namespace, written.metadata.name)),
    )


def _endpoint(written: WrittenEndpoint, namespace: str) -> SliceEndpoint:
    conditions, target = written.conditions or _UNKNOWN, written.target_ref
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    own = target is not None and target.kind == "Pod" and target.namespace in ("", namespace)
    return SliceEndpoint(
        # An endpoint may have several addresses. All of them mean the same endpoint, and Kubernetes itself uses only
        # the first.
        address=(written.addresses or [""])[0],
        pod=target.name if own and target is not None else "",
        ready=ready,
        draining=serving and conditions.terminating is True,
    )
