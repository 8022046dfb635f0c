"""Checks the syntax of durations, hosts, addresses and header names: functions from text to bool or value. `reader.py`
turns a failed check into a problem."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta
from decimal import Decimal

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HOST_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_HEADER = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|ms|s|m|h)")
_PORT = re.compile(r"[0-9]{1,5}")
_UNITS: dict[str, Decimal | int] = {
    "ns": Decimal("0.001"),
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}


def parse_duration(text: str) -> timedelta | None:
    if not text or _DURATION.sub("", text):
        return timedelta(0) if text == "0" else None
    microseconds = _microseconds(text)
    if microseconds > 10**20:
        return timedelta.max
    return (
        timedelta(microseconds=float(microseconds)) if microseconds % 1 else timedelta(microseconds=int(microseconds))
    )


def has_milliseconds_at_most(text: str) -> bool:
    """Whether a valid duration is a whole number of milliseconds."""
    return not _microseconds(text) % 1_000


def _microseconds(duration: str) -> Decimal:
    return sum((Decimal(number) * _UNITS[unit] for number, unit in _DURATION.findall(duration)), Decimal(0))


def is_dns_label(text: str) -> bool:
    return bool(_DNS_LABEL.fullmatch(text))


def is_label_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(name)) and (is_host(prefix) if slash else True)


def is_label_value(text: str) -> bool:
    return not text or bool(_LABEL_NAME.fullmatch(text))


def is_host(text: str, *, wildcard: bool = False) -> bool:
    """Whether a text is a DNS name; with `wildcard` also `*`, `*.example.com` and `*-eu.example.com`."""
    if wildcard and text.startswith("*"):
        if text == "*":
            return True
        text = text[2:] if text[1:2] in (".", "-") else ""
    text = text.removesuffix(".")
    return 0 < len(text) <= 253 and all(_HOST_LABEL.fullmatch(label) for label in text.split("."))


def is_wildcard_host(text: str) -> bool:
    """Whether a text is a DNS name, `*`, or a wildcard such as `*.example.com`."""
    return is_host(text, wildcard=True)


def is_hostname(text: str) -> bool:
    """Whether a text is a Hostname of the Gateway API: a name, or a wildcard such as `*.example.com`, but not `*`."""
    return text != "*" and is_wildcard_host(text)


def is_object_name(text: str) -> bool:
    """Whether a text can be the name of an object of Kubernetes: a DNS name in lower case."""
    return is_host(text) and text == text.lower()


def is_host_or_address(text: str) -> bool:
    return is_host(text) or is_address(text)


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "%" not in text


def is_port(text: str) -> bool:
    """Whether a text is a port number from 1 to 65535, in the digits 0 to 9."""
    return bool(_PORT.fullmatch(text)) and 1 <= int(text) <= 65_535


def is_header(text: str) -> bool:
    return bool(_HEADER.fullmatch(text))


def words(text: str) -> list[str]:
    """Split a text at whitespace. The module-level tables of names are written as such texts."""
    return text.split()
