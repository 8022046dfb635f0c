"""Computes the names by which a caller may call a host: the full name, with and without a trailing dot, its short
forms, and the addresses. The bare `NAME` is valid only for callers in the host's own namespace; elsewhere it means
another service."""

from __future__ import annotations

from ipaddress import ip_address

from weft.model.service import Service


def domains(host: str, service: Service | None, namespace: str, domain: str) -> tuple[str, ...]:
    names = [host, f"{host}.", *_short_forms(host, namespace, domain)]
    if service is not None:
        if service.headless:
            names += [f"*.{name}" for name in names]
        names += addresses(service)
    return tuple(dict.fromkeys(names))


def addresses(service: Service) -> list[str]:
    """Return the service's virtual addresses as a Host header contains them (IPv6 in brackets); address ranges are left
    out."""
    return [f"[{address}]" if ip_address(address).version == 6 else address for address in virtual_addresses(service)]


def virtual_addresses(service: Service) -> tuple[str, ...]:
    return tuple(address for address in service.addresses if "/" not in address and address)


def _short_forms(host: str, namespace: str, domain: str) -> list[str]:
    rest = host.removesuffix(f".svc.{domain}")
    if rest == host or rest.count(".") != 1:
        return []
    name, _, owner = rest.partition(".")
    own = [name] if owner == namespace and name != "*" else []
    return [*own, rest, f"{rest}.svc"]
