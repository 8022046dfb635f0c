import random

import pytest

from weft.xds.layer import Layer
from weft.xds.snapshot import Snapshots

TYPE = "cluster"
NAMES = "abcdef"


class Named:
    def __init__(self, name, version):
        self.name, self.version, self.body = name, version, b""


class Both:
    """The same mesh twice: with a layer under two groups, and with everything in each group's own tables."""

    groups = ("one", "two")

    def __init__(self):
        self.layered, self.plain = Snapshots(), Snapshots()
        self.layers = [Layer(), Layer()]
        self.under = dict.fromkeys(self.groups, 0)
        self.content = [{}, {}]  # of the layers
        self.own = {group: {} for group in self.groups}
        for group in self.groups:
            self.layered.update(group, {TYPE: {}}, self.layers[0])
            self.plain.update(group, {TYPE: {}})

    def wanted(self, group):
        return {**self.content[self.under[group]], **self.own[group]}

    def put_layer(self, number, changes):
        self.content[number] = _with(self.content[number], changes)
        self.layered.update_layer(self.layers[number], {TYPE: changes})
        self._follow()

    def put_own(self, group, changes):
        changes = {name: made for name, made in changes.items() if made or name in self.own[group]}
        self.own[group] = _with(self.own[group], changes)
        self.layered.update(group, {TYPE: changes})
        self._follow()

    def move(self, group, number):
        self.under[group] = number
        self.layered.update(group, {}, self.layers[number])
        self._follow()

    def _follow(self):
        for group in self.groups:
            self.plain.replace(group, {TYPE: self.wanted(group)})

    def each(self, call):
        return [call(snapshots) for snapshots in (self.layered, self.plain)]

    def seen(self, snapshots, group):
        table = snapshots.state(group).table(TYPE)
        return {
            "live": {name: each.version for name, each in table.live.items()},
            "number": len(table.live),
            "accepted": {name: each.version for name in NAMES if (each := table.accepted.get(name))},
            "rejected": {name: why.version for name, why in table.rejected.items()},
            "removed": {name: each and each.version for name, each in table.removed.items()},
        }


def _with(content, changes):
    merged = {**content, **changes}
    return {name: made for name, made in merged.items() if made is not None}


class Client:
    """A client that stores what a stream would send it."""

    def __init__(self, snapshots, group):
        self.snapshots, self.group, self.has, self.revision = snapshots, group, {}, 0

    def look(self):
        table = self.snapshots.state(self.group).table(TYPE)
        if self.revision == table.revision:
            return
        for name in table.changed_since(self.revision):
            if (made := table.live.get(name)) is not None:
                self.has[name] = made.version
            elif name not in table.rejected:
                self.has.pop(name, None)
        self.revision = table.revision


@pytest.mark.parametrize("seed", range(60))
def test_a_group_on_a_layer_behaves_like_one_with_all_resources_of_its_own(seed):
    chance = random.Random(seed)
    both = Both()
    clients = [[Client(snapshots, group) for snapshots in (both.layered, both.plain)] for group in both.groups]
    for _ in range(150):
        group, name = chance.choice(both.groups), chance.choice(NAMES)
        made = {
            each: Named(each, str(chance.randrange(4))) if chance.random() < 0.7 else None
            for each in chance.sample(NAMES, chance.randrange(1, 4))
        }
        live = both.plain.resources(group, TYPE)
        match chance.randrange(8):
            case 0 | 1 | 2:
                both.put_layer(chance.randrange(2), made)
            case 3:
                both.put_own(group, made)
            case 4:
                both.move(group, chance.randrange(2))
            case 5 if name in live:
                version = live[name].version
                both.each(lambda s: s.reject(group, TYPE, name, version, "no"))  # noqa: B023 - called at once
            case 6:
                taken = chance.sample(sorted(live), chance.randrange(len(live) + 1))
                versions = {each: live[each].version for each in taken}
                both.each(lambda s: s.accept_versions(group, TYPE, versions))  # noqa: B023
            case 7:
                both.each(lambda s: s.accept_until(group, TYPE, s.push))  # noqa: B023
        for pair in clients:
            if chance.random() < 0.5:
                for client in pair:
                    client.look()
                assert pair[0].has == pair[1].has
        for each in both.groups:
            layered, plain = both.each(lambda s: both.seen(s, each))  # noqa: B023
            assert layered == plain


def test_resources_that_all_accepted_are_stored_as_one_number():
    both = Both()
    both.put_layer(0, {name: Named(name, "1") for name in NAMES})
    table = both.layered.state("one").table(TYPE)
    both.layered.accept("one", TYPE, list(both.layered.resources("one", TYPE).values()))
    assert not table.explicit
    assert table.accepted["a"].version == "1"
    assert both.layered.accepted("two", TYPE, "a") is None


def test_a_change_of_the_layer_is_one_push_for_all_groups():
    both = Both()
    before = both.layered.push
    both.put_layer(0, {"a": Named("a", "1")})
    assert both.layered.push == before + 1
    assert {both.layered.state(group).table(TYPE).revision for group in both.groups} == {before + 1}


def test_a_layer_does_not_keep_dropped_groups():
    both = Both()
    for group in both.groups:
        both.layered.drop(group)
    assert not both.layered._upon
