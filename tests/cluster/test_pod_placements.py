from __future__ import annotations

import pytest

from weft.cluster.pod_placements import PodPlacements
from weft.kube.pods import PodIndex, PodRecord
from weft.model.group import Group, ProxyKind

WEB, SHELL = (Group(ProxyKind.SIDECAR, "shop", (("app", name),)) for name in ("web", "shell"))


@pytest.fixture
def pods():
    return PodIndex()


@pytest.fixture
def placements(pods):
    return PodPlacements(pods)


def pod(name, group=WEB, node="one", *, meshed=True, addresses=()):
    return PodRecord("shop", name, f"uid-of-{name}", group, node, addresses, meshed)


def test_pods_on_returns_only_the_meshed_pods_of_the_node(pods, placements):
    for record in (pod("a"), pod("b", SHELL), pod("c", node="two"), pod("plain", meshed=False), pod("new", node="")):
        pods.put(record)
    assert placements.pods_on("one") == {"uid-of-a": WEB, "uid-of-b": SHELL}
    assert placements.pods_on("three") == {}


def test_any_pod_has_a_node_once_it_is_scheduled(pods, placements):
    pods.put(pod("plain", meshed=False))
    pods.put(pod("new", node=""))
    assert placements.node_of("uid-of-plain") == "one"
    assert placements.node_of("uid-of-new") is None
    assert placements.node_of("nobody") is None


def test_subscribers_of_a_node_are_notified_when_its_placements_change(pods, placements):
    heard = []
    end = placements.subscribe("one", lambda: heard.append("one"))
    placements.subscribe("two", lambda: heard.append("two"))
    pods.put(pod("a"))
    pods.put(pod("a", addresses=("10.0.0.1",)))
    assert heard == ["one"]
    pods.put(pod("a", SHELL))
    pods.put(pod("plain", meshed=False))
    assert heard == ["one", "one"]
    pods.discard("shop", "a")
    assert heard == ["one", "one", "one"]
    end()
    end()
    pods.put(pod("b"))
    assert len(heard) == 3


def test_any_pod_is_found_by_its_name_and_its_followers_are_notified_when_it_is_replaced(pods, placements):
    heard = []
    pods.put(pod("plain", meshed=False))
    assert placements.uid_of("shop", "plain") == "uid-of-plain" and placements.group_of("uid-of-plain") == WEB
    assert placements.uid_of("other", "plain") is None and placements.group_of("nobody") is None
    end = placements.follow("uid-of-plain", lambda: heard.append(placements.group_of("uid-of-plain")))
    pods.put(pod("plain", meshed=False, addresses=("10.0.0.1",)))
    pods.put(pod("other", SHELL))
    assert heard == []
    pods.put(pod("plain", SHELL, meshed=False))
    pods.discard("shop", "plain")
    assert heard == [SHELL, None]
    end()
    pods.put(pod("plain", SHELL))
    pods.discard("shop", "plain")
    assert len(heard) == 2
