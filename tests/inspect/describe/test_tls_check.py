"""Tests of whether callers and servers agree on TLS, compared with the explained outcome of a request."""

import itertools
from datetime import datetime

import pytest

from model.builders import instance, put, service
from weft.base.ambiguous import Ambiguous
from weft.inspect.ask.answer import answer
from weft.inspect.ask.question import Question
from weft.inspect.describe.tls_check import NoSuchPort, tls_check
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, Subset, TrafficPolicy
from weft.model.names import ObjectKey, labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol
from weft.model.settings import Settings

HOST = "app.shop.svc.cluster.local"


def made(*values, app=True, settings=None, **client):
    mesh = Mesh(settings)
    put(mesh, service("app", addresses=("10.96.0.7",)), *values)
    caller = instance("client-0", "client", address="10.244.0.3", **{"meshed": True, **client})
    for pod in (instance("app-0", "app", meshed=app, address="10.244.0.2"), caller):
        mesh.apply(ObjectKey("Pod", "shop", pod.name), (pod,))
    return mesh


def rule(mode, name="app", namespace="shop", **more):
    return DestinationRule(name, namespace, HOST, TrafficPolicy(tls=ClientTls(mode)), **more)


def checked(mesh, host="app", **more):
    return tls_check(mesh, Stage(mesh), host, **more)


@pytest.mark.parametrize(
    ("client", "server", "app", "caller", "automatic"),
    list(itertools.product((None, *ClientTlsMode), (None, *TlsMode), (True, False), (True, False), (True, False))),
)
def test_the_check_agrees_with_the_explained_outcome(client, server, app, caller, automatic):
    values = [*([rule(client)] if client else []), *([PeerAuthentication("a", "shop", mode=server)] if server else [])]
    mesh = made(*values, app=app, meshed=caller, settings=Settings(auto_mtls=automatic))
    (row,) = checked(mesh, caller="client-0")
    # Without a proxy, the network decides where a service's address leads, so the pod's address is called.
    asked = Question("client-0", "http://app/" if caller else "http://10.244.0.2:8080/")
    kind = answer(Stage(mesh), asked, datetime.now().astimezone()).explanation.outcomes[0].verdict.kind
    if kind == "unknown":  # the TLS files are not readable here; only a missing client certificate is certain
        assert row.status == ("CONFLICT" if (client, server, app) == ("SIMPLE", "STRICT", True) else "UNKNOWN")
    else:
        assert row.status == {"delivered": "OK", "failed": "CONFLICT", "closed": "CONFLICT"}[kind]
    assert (row.rule is not None) is (client is not None and caller)
    assert (row.policy is not None) is (server is not None and app)
    assert bool(row.why) is (row.status != "OK")


def test_a_short_name_is_resolved_in_the_callers_namespace():
    mesh = made(service("app", "elsewhere", addresses=("10.96.0.8",)))
    assert {row.host for row in checked(mesh, caller="client-0")} == {HOST}
    with pytest.raises(Ambiguous):
        checked(mesh)
    (row,) = checked(mesh, caller="client-0", host="app.elsewhere")
    assert row.host == "app.elsewhere.svc.cluster.local"


def test_pods_with_different_modes_have_separate_rows():
    labels = labels_of({"version": "v2"})
    mesh = made(rule(ClientTlsMode.DISABLE), PeerAuthentication("door", "shop", labels, TlsMode.STRICT))
    pod = instance("app-1", "app", labels={"version": "v2"}, meshed=True, address="10.244.0.4")
    mesh.apply(ObjectKey("Pod", "shop", "app-1"), (pod,))
    assert [(row.status, row.server, row.servers) for row in checked(mesh)] == [
        ("CONFLICT", "STRICT", ("app-1.shop",)),
        ("OK", "PERMISSIVE", ("app-0.shop",)),
    ]


def test_callers_with_different_rules_have_separate_rows():
    mesh = made(rule(ClientTlsMode.DISABLE, "own", "elsewhere"))
    pod = instance("far-0", "far", "elsewhere", meshed=True, address="10.244.0.4")
    mesh.apply(ObjectKey("Pod", "elsewhere", "far-0"), (pod,))
    assert [(row.client, row.callers) for row in checked(mesh)] == [
        ("DISABLE", ("far-0.elsewhere",)),
        ("auto (mTLS)", ("app-0.shop", "client-0.shop")),
    ]


def test_a_subset_with_another_mode_has_a_separate_row():
    strange = Subset("v1", labels_of({"app": "app"}), TrafficPolicy(tls=ClientTls(ClientTlsMode.DISABLE)))
    same = Subset("v2", labels_of({"app": "app"}))
    mesh = made(
        DestinationRule("app", "shop", HOST, subsets=(strange, same)),
        PeerAuthentication("door", "shop", mode=TlsMode.STRICT),
    )
    assert [(row.subset, row.status) for row in checked(mesh)] == [("", "OK"), ("v1", "CONFLICT")]


def test_without_endpoints_the_status_is_unknown():
    mesh = Mesh()
    put(mesh, service("app"))
    (row,) = checked(mesh)
    assert (row.status, row.server, row.client) == ("UNKNOWN", "no endpoint", "auto")


def test_one_port_is_selected_by_number():
    assert [row.port for row in checked(made(), port=80)] == [80]
    with pytest.raises(NoSuchPort) as raised:
        checked(made(), port=81)
    assert raised.value.problem.hint == "it has 80"


def test_udp_bypasses_the_proxies_whatever_the_rules():
    mesh = made(rule(ClientTlsMode.ISTIO_MUTUAL), PeerAuthentication("door", "shop", mode=TlsMode.STRICT))
    put(mesh, service("app", addresses=("10.96.0.7",), port=53, target=53, protocol=Protocol.UDP))
    for row in (*checked(mesh), *checked(mesh, port=53, caller="client-0")):
        assert (row.port, row.status, row.server, row.client) == (53, "UNKNOWN", "no proxy", "UDP")
        assert (row.policy, row.rule) == (None, None)
        assert "bypasses the proxies" in row.why and "client-0.shop" in row.callers
