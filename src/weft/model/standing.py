"""How those behind a service stand to the mesh, as far as callers depend on it beyond the endpoints themselves: at
which ports all of them are met by a proxy, at which all of them are called over the mesh's TLS, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from weft.model.instance import Instance
from weft.model.names import Labels
from weft.model.peer_authentication import PeerModes, TlsMode
from weft.model.service import Resolution, Service, ServicePort


class Standing(msgspec.Struct, frozen=True):
    meshed: tuple[int, ...] = ()  # service ports at which everyone is met by a proxy of this mesh
    secured: tuple[int, ...] = ()  # service ports at which everyone takes the mesh's TLS
    accounts: tuple[str, ...] = ()  # service accounts of everyone, ready or not, in the service's namespace


def standing_of(
    service: Service, members: Collection[Instance], modes: Callable[[Labels], PeerModes], *, alike: bool
) -> Standing:
    """`alike`: the policies let the same peers in at all of them."""
    if service.selector is None:
        return Standing(accounts=_sorted(written.service_account for written in service.static_endpoints))
    accounts = _sorted({member.service_account for member in members})
    # Asked at every change of a pod, and of thousands of pods: almost all of them are like this.
    odd = [member for member in members if not _is_plain(member)]
    static = service.resolution is Resolution.STATIC
    doubtful = odd if alike and modes(()).mode is not TlsMode.DISABLE else members
    return Standing(
        meshed=tuple(port.number for port in service.ports if all(_is_met(each, port) for each in odd))
        if static
        else (),
        secured=tuple(port.number for port in service.ports if all(_takes_tls(each, port, modes) for each in doubtful)),
        accounts=accounts,
    )


def _is_plain(instance: Instance) -> bool:
    everywhere = instance.included_ports is None and not instance.excluded_ports
    return instance.meshed and everywhere and not instance.refuses_tls


def _is_met(instance: Instance, port: ServicePort) -> bool:
    """A port that is excluded from interception is met by the application itself."""
    number = instance.port_for(port)
    return instance.meshed and (number is None or instance.intercepts(number))


def _takes_tls(instance: Instance, port: ServicePort, modes: Callable[[Labels], PeerModes]) -> bool:
    number = instance.port_for(port)
    return number is None or (instance.speaks_tls(number) and modes(instance.labels).at(number) is not TlsMode.DISABLE)


def _sorted(accounts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({account for account in accounts if account}))
