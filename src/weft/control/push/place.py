"""Where groups look at the mesh from: a kind of proxy, a scope, settings, a policy, a locality where it matters to
anybody, and how they are told of services. What looks the same from there, whatever the labels of a group, is compiled
and recorded once for all of them; `push.py` keeps the places, and says what is seen from each."""

from __future__ import annotations

import msgspec

from weft.control.push.compiled import Compiled, Configure, Update
from weft.model.group import Group, ProxyKind
from weft.model.on_demand import Telling
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import Outbound
from weft.translate.view import GroupView
from weft.xds.layer import Layer

PlaceKey = tuple[ProxyKind, Scope, Settings, Outbound, str, Telling]


class Place:
    """Where groups look at the mesh from. All that see it from here have what looks the same to them, whatever their
    labels, in common; it is translated, joined and recorded once."""

    def __init__(self, key: PlaceKey, view: GroupView, configure: Configure) -> None:
        self.key = key
        self.compiled = Compiled(view, configure)
        self.layer = Layer()
        self.groups: dict[Group, None] = {}
        self.by_labels: set[str] = set()  # hosts that each group sees in its own way
        # Where hosts are told of when they are called (`demand.py`):
        self.looked: PlaceKey | None = None  # how it was when the rest was found
        self.always: set[str] = set()  # hosts that are told of all the same
        self.told: frozenset[str] = frozenset()  # with all that their routes lead to
        self.leads: dict[str, tuple[str, ...]] = {}  # where the routes of a host lead, if anybody has asked
        self.turn = 0  # another one, if any of this is another

    @property
    def scope(self) -> Scope:
        return self.key[1]

    @property
    def settings(self) -> Settings:
        return self.key[2]

    @property
    def telling(self) -> Telling:
        return self.key[5]

    @property
    def on_demand(self) -> bool:
        """Whether hosts are told of when they are called."""
        return not self.telling.every

    def concerns(self, host: str) -> bool:
        """Whether a host that may be another now is, or was, seen from there."""
        return host in self.told or host in self.by_labels or self.compiled.has(host)

    @property
    def hosts(self) -> frozenset[str]:
        """All that are seen from there."""
        return frozenset({*self.compiled.hosts, *self.by_labels})


class Change(msgspec.Struct, eq=False):
    """What a push does to a place."""

    hosts: frozenset[str]  # that may look different from there
    update: Update = {}
    rerouted: frozenset[str] = frozenset()  # hosts that have other routes now


def place_key(group: Group, scope: Scope, view: GroupView) -> PlaceKey:
    return group.kind, scope, view.settings, view.policy, view.locality, view.telling


def staying(update: Update, common: Update) -> Update:
    """What a group has itself from now on of what is to go from all."""
    found: Update = {}
    for type_url, resources in update.items():
        going = common.get(type_url, {})
        stays = {name: made for name, made in resources.items() if made is not None and going.get(name, made) is None}
        if stays:
            found[type_url] = dict(stays)
    return found
