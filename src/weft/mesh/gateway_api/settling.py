"""Decides when the Gateway API's objects are combined: after each change or, for a batch of changes, after the last
one. Keeps what was derived from each parent and returns the differences. `mesh.py` owns it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from weft.mesh.gateway_api.attached import Attached, Derived
from weft.mesh.gateway_api.route_rules import Services
from weft.model.credential import Credential
from weft.model.destination_rule import DestinationRule
from weft.model.gateway import Gateway
from weft.model.gateway_api import Parent
from weft.model.names import CredentialRef
from weft.model.value import Value
from weft.model.virtual_service import VirtualService

Made = VirtualService | Gateway | DestinationRule


class Settling:
    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._derived: dict[Parent, Derived] = {}  # derived from the Gateway API's objects
        self._unsettled: set[Parent] = set()  # parents to derive again
        self._held = False

    def notice(self, values: Iterable[Value]) -> None:
        """Mark the parents (Gateways or Services) whose objects `settle` must derive again because these values change.
        The parents are found in the index as it is now, so call this before a change, with the values to remove, and
        again after it, with the removed and the added values: the index may lead to other parents then."""
        self._unsettled.update(parent for value in values for parent in self._attached.changed_by(value))

    @contextmanager
    def together(self) -> Iterator[None]:
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def settle(
        self, services: Services, credential: Callable[[CredentialRef], Credential | None]
    ) -> Iterator[tuple[list[Made], list[Made]]]:
        """Derive the objects of the marked parents again. Yields (gone, new) for each parent: the values that are no
        longer derived, and those that are new. Yields nothing during a batch of changes. `services`: finds the services
        of the mesh. `credential`: returns the content of a Secret; None if it does not exist."""
        if self._held:
            return
        parents, self._unsettled = sorted(self._unsettled), set()
        for parent in parents:
            before = self._derived.pop(parent, Derived())
            after = self._attached.derive(parent, services, credential)
            if after != Derived():
                self._derived[parent] = after
            old, new = dict.fromkeys(before.values), dict.fromkeys(after.values)
            yield [value for value in old if value not in new], [value for value in new if value not in old]

    def derived(self) -> Iterator[Derived]:
        yield from self._derived.values()
