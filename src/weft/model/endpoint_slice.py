"""Who answers behind a Kubernetes Service, as Kubernetes itself has found out: its EndpointSlices. What is known of the
pods behind the addresses (labels, account, proxy) stands in their Instances."""

from __future__ import annotations

import msgspec

from weft.model.names import Origin


class SliceEndpoint(msgspec.Struct, frozen=True):
    address: str
    pod: str = ""  # its name, in the slice's namespace; "": the slice does not say
    ready: bool = True
    draining: bool = False  # about to end, and still answering

    @property
    def key(self) -> str:
        """By what its pod is found."""
        return self.pod or self.address


class EndpointSlice(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    service: str  # the name of the Service
    ports: tuple[tuple[str, int], ...] = ()  # by the name of the Service's port: where all of its endpoints serve it
    endpoints: tuple[SliceEndpoint, ...] = ()
    managed: bool = False  # made by Kubernetes from the Service's selector, not by a person or another controller
    origin: Origin | None = None

    def port(self, name: str) -> int | None:
        return next((number for known, number in self.ports if known == name), None)
