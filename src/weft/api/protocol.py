"""Determines the protocol of a port: by `appProtocol`, then by the prefix of its name, then by well-known port numbers;
otherwise it is undeclared."""

from __future__ import annotations

from weft.api.reader import Fields
from weft.base.suggest import did_you_mean
from weft.model.service import Protocol

PROTOCOLS = {
    **{protocol.value: protocol for protocol in Protocol if protocol is not Protocol.UNDECLARED},
    "http_proxy": Protocol.HTTP,
    "mongodb": Protocol.MONGO,
}
_APP_PROTOCOLS = {
    "kubernetes.io/h2c": Protocol.HTTP2,
    "kubernetes.io/ws": Protocol.HTTP,
    "kubernetes.io/wss": Protocol.HTTPS,
}
# SMTP, DNS, MySQL and MongoDB: either the server sends first, or the protocol is not HTTP. Waiting for the client's
# first bytes, to detect HTTP, would only delay these connections.
_SPEAK_FIRST = frozenset({25, 53, 3306, 27017})


def from_name(name: str, number: int = 0) -> Protocol:
    """Return the protocol of a port by Istio's convention for names: `http-web` is HTTP, `grpc` is gRPC, `web` is
    undeclared. If the name declares no protocol, the port number decides, but only for well-known ports that do
    not carry HTTP."""
    lower = name.lower()
    prefix = "grpc-web" if lower.startswith("grpc-web") else lower.partition("-")[0]
    protocol = PROTOCOLS.get(prefix, Protocol.UNDECLARED)
    return Protocol.TCP if protocol is Protocol.UNDECLARED and number in _SPEAK_FIRST else protocol


def service_protocol(port: Fields, name: str, number: int) -> Protocol:
    """Return the protocol of a port of a Kubernetes Service, by `appProtocol`, the port's name or its number. `name`
    and `number`: those of the port."""
    transport = port.choice("protocol", ("TCP", "UDP", "SCTP"), default="TCP")
    written = port.text("appProtocol", most=253)
    if transport == "UDP":
        return Protocol.UDP
    if transport == "SCTP":
        port.warning("protocol", "SCTP is not supported: it bypasses the proxies")
        return Protocol.UDP
    if not written:
        return from_name(name, number)
    lower = written.lower()
    protocol = _APP_PROTOCOLS.get(lower) or PROTOCOLS.get(lower)
    if protocol is None:
        port.warning(
            "appProtocol",
            f"the protocol `{written}` is not known; proxies detect it from the first bytes of each connection",
            "if the server sends first, use tcp",
        )
        return from_name("", number)
    return protocol


def istio_protocol(port: Fields, number: int, *, required: bool = False) -> Protocol:
    """Read the `protocol` of a port of a ServiceEntry, Gateway, Sidecar or Workload; upper and lower case are equal.
    `number`: the port number, which decides if `protocol` is not set. `required`: a missing `protocol` is an error."""
    written = port.text("protocol", required=required, most=64)
    if not written:
        return from_name("", number)
    protocol = PROTOCOLS.get(written.lower())
    if protocol is None:
        port.error(
            "protocol",
            f"the protocol `{written}` is not known",
            did_you_mean(written, (name.upper() for name in PROTOCOLS)),
        )
    return protocol or Protocol.UNDECLARED
