"""Step 1 of a push, gather: collects what has changed since the last push.

Input: the mesh's `Touched` and the first calls of groups. Output: one `Gathered` for all of them, taken when
`schedule.py` decides. Rule: hosts of which only the endpoints have changed are collected separately, because their push
does not wait for other changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from weft.mesh.calls import Address
from weft.mesh.touched import Touched
from weft.model.group import Group


class Gathered(msgspec.Struct, frozen=True):
    touched: Touched
    endpoints: frozenset[str]  # hosts of which only the endpoints have changed


class Waiting(msgspec.Struct, frozen=True):
    """What an added change waits for: a full push (`changes`), a push of endpoints alone (`endpoints`), or both."""

    changes: bool
    endpoints: bool


class GatherStep:
    def __init__(self) -> None:
        self._touched = Touched()
        self._endpoints: set[str] = set()
        self._calls: dict[Group, list[Address]] = {}

    def add(self, touched: Touched) -> Waiting:
        only_endpoints = touched.endpoints - touched.hosts
        self._endpoints |= only_endpoints
        has_more = bool(touched.hosts or touched.inbound or touched.scopes or touched.gateways)
        if has_more:
            self._touched |= touched
        return Waiting(has_more, bool(only_endpoints))

    def take(self) -> Gathered:
        touched, self._touched = self._touched, Touched()
        return Gathered(touched, self.take_endpoints())

    def take_endpoints(self) -> frozenset[str]:
        endpoints, self._endpoints = frozenset(self._endpoints), set()
        return endpoints

    def add_calls(self, group: Group, addresses: Iterable[Address]) -> None:
        """Record that the group has made first calls, so that the next push sends the config of the hosts that it
        calls. `addresses`: the addresses to which its proxies hold calls, which that push releases; empty if the hosts
        were called by name."""
        self._calls.setdefault(group, []).extend(addresses)

    def take_calls(self) -> dict[Group, list[Address]]:
        calls, self._calls = self._calls, {}
        return calls
