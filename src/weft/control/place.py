"""Where groups look at the mesh from: a kind of proxy, a scope, settings, a policy, and a locality where it matters to
anybody. What looks the same from there, whatever the labels of a group, is compiled and recorded once for all of them;
`push.py` keeps the places, and says what is seen from each."""

from __future__ import annotations

import msgspec

from weft.control.compiled import Compiled, Configure, Update
from weft.model.group import Group, ProxyKind
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import Outbound
from weft.translate.view import GroupView
from weft.xds.layer import Layer

PlaceKey = tuple[ProxyKind, Scope, Settings, Outbound, str]


class Place:
    """Where groups look at the mesh from. All that see it from here have what looks the same to them, whatever their
    labels, in common; it is translated, joined and recorded once."""

    def __init__(self, key: PlaceKey, view: GroupView, configure: Configure) -> None:
        self.key = key
        self.compiled = Compiled(view, configure)
        self.layer = Layer()
        self.groups: dict[Group, None] = {}
        self.by_labels: set[str] = set()  # hosts that each group sees in its own way
        self.on_demand = False  # whether hosts are told of when they are called
        self.always: set[str] = set()  # if so, those that are told of all the same
        self.told: frozenset[str] = frozenset()  # with all that their routes lead to

    @property
    def scope(self) -> Scope:
        return self.key[1]

    @property
    def settings(self) -> Settings:
        return self.key[2]


class Change(msgspec.Struct, eq=False):
    """What a push does to a place."""

    hosts: frozenset[str]  # that may look different from there
    update: Update = {}
    rerouted: frozenset[str] = frozenset()  # hosts that have other routes now


def place_key(group: Group, scope: Scope, view: GroupView) -> PlaceKey:
    return group.kind, scope, view.settings, view.policy, view.locality


def staying(update: Update, common: Update) -> Update:
    """What a group has itself from now on of what is to go from all."""
    found: Update = {}
    for type_url, resources in update.items():
        going = common.get(type_url, {})
        stays = {name: made for name, made in resources.items() if made is not None and going.get(name, made) is None}
        if stays:
            found[type_url] = dict(stays)
    return found
