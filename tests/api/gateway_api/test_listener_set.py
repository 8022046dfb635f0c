import pytest

from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import AllowedNamespaces, From


def listener_set(parent="{name: edge, namespace: far}", listeners="{name: http, port: 80, protocol: HTTP}"):
    return standard("ListenerSet", f"parentRef: {parent}\nlisteners:\n  - {listeners}")


def test_a_listener_set_names_its_gateway_and_has_listeners():
    found = value(listener_set())
    assert (found.gateway, found.key.kind) == (("Gateway", "far", "edge"), "ListenerSet")
    (listener,) = found.listeners
    assert (listener.name, listener.port, listener.namespaces) == ("http", 80, AllowedNamespaces(From.SAME))
    assert value(listener_set("{name: edge}")).gateway == ("Gateway", "shop", "edge")


@pytest.mark.parametrize(
    ("parent", "problem"),
    [
        (
            "{name: edge, kind: Service}",
            "5 weft does not support a Service of gateway.networking.k8s.io as the parent of a ListenerSet"
            " (name a Gateway (gateway.networking.k8s.io))",
        ),
        ("{}", "5 `name` is required"),
    ],
)
def test_a_listener_set_without_a_gateway_is_rejected(parent, problem):
    assert told(listener_set(parent)) == [problem]


def test_listeners_of_one_set_have_different_names():
    twice = "{name: a, port: 80, protocol: HTTP}\n  - {name: a, port: 81, protocol: HTTP}"
    assert told(listener_set(listeners=twice)) == ["8 two listeners are named `a`"]
