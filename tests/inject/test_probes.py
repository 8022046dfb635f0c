import copy

import pytest

from weft.inject.probes import decode, encode, restore, rewrite
from weft.inject.sidecar import variable
from weft.model.app_probe import AppProbe, GrpcCheck, HttpCheck, TcpCheck

ADDRESS = variable("INSTANCE_IP")


def rewritten(container, **options):
    found, originals = rewrite([container], **{"port": 15020, "ipv6": False, **options})
    return found, originals, container


def web(**fields):
    return {"name": "web", "ports": [{"name": "http", "containerPort": 8080}], **fields}


def test_kubelet_probes_the_proxy_with_the_same_timing():
    timing = {"initialDelaySeconds": 3, "timeoutSeconds": 2, "periodSeconds": 7, "failureThreshold": 9}
    probe = {
        "httpGet": {"path": "/ready?a=b#c", "port": "http", "httpHeaders": [{"name": "X", "value": "y"}]},
        **timing,
    }
    (found,), _, container = rewritten(web(readinessProbe=probe))
    assert found == AppProbe(
        path="/app-health/web/readyz",
        check=HttpCheck(port=8080, path="/ready?a=b", host=f"{ADDRESS}:8080"),
        timeout=2,
        period=7,
    )
    assert container["readinessProbe"] == {
        "httpGet": {
            "path": "/app-health/web/readyz",
            "port": 15020,
            "scheme": "HTTP",
            "httpHeaders": [{"name": "X", "value": "y"}],
        },
        **timing,
    }


@pytest.mark.parametrize(
    ("handler", "check"),
    [
        ({"tcpSocket": {"port": "http"}}, TcpCheck(port=8080)),
        ({"tcpSocket": {"port": 9}}, TcpCheck(port=9)),
        ({"grpc": {"port": 50051}}, GrpcCheck(port=50051)),
        ({"grpc": {"port": 50051, "service": "x.Y"}}, GrpcCheck(port=50051, service="x.Y")),
        ({"httpGet": {"port": 1, "scheme": "HTTPS"}}, HttpCheck(port=1, tls=True, host=f"{ADDRESS}:1")),
        ({"httpGet": {"port": 1, "path": "x"}}, HttpCheck(port=1, path="/x", host=f"{ADDRESS}:1")),
        ({"httpGet": {"port": 1, "httpHeaders": [{"name": "HOST", "value": "a"}]}}, HttpCheck(port=1)),
    ],
)
def test_each_kind_of_probe_is_rewritten(handler, check):
    (found,), _, container = rewritten(web(livenessProbe=handler))
    assert found.check == check
    assert set(container["livenessProbe"]) == {"httpGet"}


@pytest.mark.parametrize(
    "handler",
    [
        {"exec": {"command": ["true"]}},
        {"httpGet": {"port": 80, "host": "elsewhere"}},
        {"tcpSocket": {"port": "unknown"}},
        {"httpGet": {"port": 15021, "path": "/healthz/ready"}},
        {"httpGet": {"port": 15020, "path": "/app-health/web/livez"}},
        {"httpGet": {"port": 0}},
        {"httpGet": {"port": True}},
        {"httpGet": None},
        {},
    ],
)
def test_probes_that_do_not_use_the_network_are_unchanged(handler):
    before = web(startupProbe=copy.deepcopy(handler))
    found, originals, container = rewritten(copy.deepcopy(before))
    assert (found, originals, container) == ((), {}, before)


def test_hooks_over_http_go_the_same_way():
    hooks = {"preStop": {"httpGet": {"port": 8080, "path": "/bye"}}, "postStart": {"exec": {"command": ["x"]}}}
    (found,), _, container = rewritten(web(lifecycle=hooks))
    assert found.path == "/app-lifecycle/web/prestopz"
    assert container["lifecycle"]["preStop"]["httpGet"]["path"] == "/app-lifecycle/web/prestopz"
    assert container["lifecycle"]["postStart"] == {"exec": {"command": ["x"]}}


def test_an_ipv6_address_is_written_in_brackets():
    (found,), _, _ = rewritten(web(readinessProbe={"httpGet": {"port": 8080}}), ipv6=True)
    assert found.check.host == f"[{ADDRESS}]:8080"


def test_what_was_rewritten_can_be_restored():
    before = web(
        readinessProbe={"httpGet": {"port": "http", "path": "/a", "scheme": "HTTPS"}, "periodSeconds": 3},
        livenessProbe={"grpc": {"port": 5}},
        startupProbe={"tcpSocket": {"port": 5}},
        lifecycle={"preStop": {"httpGet": {"port": 5}}},
    )
    _, originals, container = rewritten(copy.deepcopy(before))
    assert container != before
    restore([container], decode(encode(originals)))
    assert container == before


def test_a_probe_that_another_put_there_since_stays():
    _, originals, container = rewritten(web(readinessProbe={"httpGet": {"port": 80}}))
    container["readinessProbe"] = {"httpGet": {"port": 81, "path": "/new"}}
    restore([container], originals)
    assert container["readinessProbe"] == {"httpGet": {"port": 81, "path": "/new"}}


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "\udcff"])
def test_an_unreadable_list_of_probes_is_empty(text):
    assert decode(text) == {}
