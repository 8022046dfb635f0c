"""EndpointSlices: the endpoints of a Kubernetes Service as Kubernetes lists them. Labels, service account and proxy of
the pods behind the addresses are in their Instances."""

from __future__ import annotations

import msgspec

from weft.model.names import Origin


class SliceEndpoint(msgspec.Struct, frozen=True):
    address: str
    pod: str = ""  # the pod's name, in the slice's namespace; "": the slice names no pod
    ready: bool = True
    draining: bool = False  # terminating and still serving

    @property
    def key(self) -> str:
        """The key of the endpoint in indexes: the name of its pod or, without one, its address."""
        return self.pod or self.address


class EndpointSlice(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    service: str  # the name of the Service
    ports: tuple[tuple[str, int], ...] = ()  # Service port name → number at which all endpoints serve it
    endpoints: tuple[SliceEndpoint, ...] = ()
    managed: bool = False  # created by Kubernetes from the Service's selector, not by a user or another controller
    origin: Origin | None = None

    def port(self, name: str) -> int | None:
        return next((number for known, number in self.ports if known == name), None)
