"""Tests of the clues, each in a mesh with one defect: an unknown host, a hidden service, pods that are not ready.
Also which known problems are listed."""

from datetime import UTC, datetime

import msgspec
import pytest
from tests.inspect.test_closed_servers import stage_of

from model.builders import instance, put, service
from weft.base.problem import Problem, Where
from weft.control.sync_status import STALE, SYNCED, ProxySync, TypeSync
from weft.inspect.ask.answer import answer
from weft.inspect.ask.causes import Wrong, stale
from weft.inspect.ask.question import Question
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, Origin
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.request_authentication import RequestAuthentication
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import EgressListener, OutboundPolicy, Sidecar
from weft.model.virtual_service import VirtualService

NOW = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)
SIDECAR = Origin(ObjectKey("Sidecar", "shop", "narrow"), "", "narrow.yaml", 7)


def shop(*more, ready=True):
    mesh = Mesh()
    put(mesh, service("web", addresses=("10.96.0.7",)), service("api", addresses=("10.96.0.8",)))
    put(mesh, instance("client-0", "client", address="10.244.0.2", meshed=True))
    put(mesh, instance("web-0", "web", address="10.244.0.3", meshed=True, workload="web", ready=ready))
    put(mesh, *more)
    return Stage(mesh)


def told(stage, to, problems=()):
    return answer(stage, Question("client", to), NOW, Wrong(tuple(problems))).problems


def test_a_delivered_request_has_no_clues():
    assert told(shop(), "http://web/") == ()


def test_an_unknown_host_gets_a_hint_with_a_similar_name():
    (found,) = told(shop(), "http://wbe/")
    assert found.what == "no Service and no ServiceEntry has the name wbe"
    assert found.hint == "did you mean `web`?"
    (found,) = told(shop(), "http://something/")
    assert found.hint == "call a service in another namespace as NAME.NAMESPACE"


def test_calling_a_workload_by_its_name_gets_a_hint_to_call_a_service():
    (found,) = told(shop(), "http://web-0/")
    assert found.hint == "web-0 is a workload, and only Services can be called: call web"
    (found,) = told(shop(), "http://client-0/")
    assert found.hint == "client-0 is a workload, and only Services can be called: create a Service that selects it"


@pytest.mark.parametrize("host", ["ledger", "ledger.default", "ledger.default.svc", "ledger.lab.svc.cluster.local"])
def test_an_unknown_host_gets_a_hint_with_the_same_name_in_another_namespace(host):
    (found,) = told(shop(service("ledger", "bank", addresses=("10.96.0.9",))), f"http://{host}/")
    assert found.hint == "did you mean `ledger.bank`?"


def test_a_similar_name_in_another_namespace_is_suggested_with_its_namespace():
    (found,) = told(shop(service("ledger", "bank", addresses=("10.96.0.9",))), "http://legder.bank/")
    assert found.hint == "did you mean `ledger.bank`?"


@pytest.mark.parametrize("host", ["example.com", "something.example.com"])
def test_an_external_host_gets_a_hint_to_create_a_service_entry(host):
    (found,) = told(shop(), f"http://{host}/")
    told_outside = "create a ServiceEntry for it; pods of a local mesh reach nothing outside"
    assert found.hint == f"if {host} is outside the mesh, {told_outside}"


def test_a_sidecar_that_hides_a_service_is_reported_with_its_egress_hosts():
    narrow = Sidecar(
        "narrow",
        "shop",
        egress=(EgressListener(("./api.shop.svc.cluster.local",)),),
        outbound_policy=OutboundPolicy.REGISTRY_ONLY,
        origin=SIDECAR,
    )
    (found,) = told(shop(narrow), "http://web/")
    assert str(found.where) == "narrow.yaml:7: Sidecar shop/narrow"
    assert found.what.endswith(
        "hidden from client-0.shop: the caller's Sidecar imports only ./api.shop.svc.cluster.local"
    )
    assert found.hint == "add shop/web.shop.svc.cluster.local to `egress` of the Sidecar"


def test_a_service_that_is_not_exported_is_reported_although_its_name_does_not_resolve():
    origin = Origin(ObjectKey("Service", "bank", "ledger"), "", "bank.yaml", 3)
    hidden = service("ledger", "bank", export_to=(".",), origin=origin, addresses=("10.96.0.9",))
    (found,) = told(shop(hidden), "http://ledger.bank/")
    assert str(found.where) == "bank.yaml:3: Service bank/ledger"
    assert "it is exported to `.` only" in found.what


@pytest.mark.parametrize("to", ["http://web/", "http://10.96.0.7/"])
def test_a_hidden_service_is_reported_even_if_the_call_is_delivered(to):
    narrow = Sidecar("narrow", "shop", egress=(EgressListener(("./api.shop.svc.cluster.local",)),), origin=SIDECAR)
    past = "; the call bypasses the mesh, without its routes and without mutual TLS"
    (found,) = told(shop(narrow), to)
    assert str(found.where) == "narrow.yaml:7: Sidecar shop/narrow"
    assert found.what.endswith(f"the caller's Sidecar imports only ./api.shop.svc.cluster.local{past}")
    assert told(shop(narrow), to.replace("web", "api").replace("0.7", "0.8")) == ()
    (found,) = told(shop(narrow, PeerAuthentication("strict", "shop", mode=TlsMode.STRICT)), to)
    assert found.what.endswith("the caller's Sidecar imports only ./api.shop.svc.cluster.local"), (
        "and it does not arrive"
    )
    (found,) = told(shop(service("ledger", "bank", export_to=(".",), addresses=("10.96.0.9",))), "http://10.96.0.9/")
    assert "ledger.bank.svc.cluster.local is hidden from client-0.shop: it is exported to `.` only" in found.what


def test_a_hidden_port_is_reported_although_another_port_is_visible():
    port = ServicePort(80, "http", Protocol.HTTP, 8080)
    shown = EgressListener(("./web.shop.svc.cluster.local",), port)
    both = (port, ServicePort(81, "http-other", Protocol.HTTP, 8080))
    two = msgspec.structs.replace(service("web", addresses=("10.96.0.7",)), ports=both)
    stage = shop(two, Sidecar("narrow", "shop", egress=(shown,), origin=SIDECAR))
    assert told(stage, "http://web/") == ()
    (found,) = told(stage, "http://web:81/")
    assert "web.shop.svc.cluster.local is hidden from client-0.shop" in found.what


def test_unready_pods_are_reported_only_if_no_pod_is_ready():
    (found,) = told(shop(ready=False), "http://web/")
    assert found.what == "web-0.shop is a pod of web.shop.svc.cluster.local and is not ready: it gets no requests"
    assert "weft logs web" in found.hint
    of_cluster = instance(
        "api-0", "api", address="10.244.0.5", ready=False, origin=Origin(ObjectKey("Pod", "shop", "api-0"))
    )
    (found,) = told(shop(of_cluster), "http://api/")
    assert (str(found.where), found.hint) == ("Pod shop/api-0", "find out why: kubectl describe pod api-0 -n shop")
    beside = instance("web-1", "web", address="10.244.0.4", meshed=True)
    assert told(shop(beside, ready=False), "http://web/") == ()


def test_a_missing_service_port_is_reported_with_the_existing_ports():
    origin = Origin(ObjectKey("Service", "shop", "old"), "", "old.yaml", 3)
    stage = shop(service("old", addresses=("10.96.0.9",), origin=origin))
    for to in ("http://old:81/", "https://old:81/"):
        (found,) = told(stage, to)
        assert str(found.where) == "old.yaml:3: Service shop/old"
        assert (found.what, found.hint) == (
            "old has no port 81 (it has 80)",
            "call old:80, or add the port to the Service",
        )


def test_a_stale_proxy_is_reported_whichever_endpoint_is_chosen():
    beside = instance("web-1", "web", address="10.244.0.4", meshed=True, workload="web")
    behind = {"client-0.shop": 7, "web-1.shop": 9, "api-0.shop": 3}
    found = answer(shop(beside), Question("client", "http://web/"), NOW, Wrong(stale=behind)).problems
    assert [str(each) for each in found] == [
        "warning: client-0's proxy is STALE since push 7: it may still use older config"
        " (hint: weft proxy-status client-0.shop)",
        "warning: web-1's proxy is STALE since push 9: it may still use older config"
        " (hint: weft proxy-status web-1.shop)",
    ]


def test_a_proxy_is_stale_since_the_first_unacknowledged_push():
    late, later = TypeSync(STALE, stale_since_push=7), TypeSync(STALE, stale_since_push=9)
    proxies = [
        ProxySync("client-0.shop", resources={"a": later, "b": late, "c": TypeSync(SYNCED)}),
        ProxySync("web-0.shop", resources={"a": late}),
        ProxySync("web-0.shop", resources={"a": TypeSync(SYNCED)}),  # the proxy's newer stream
    ]
    assert stale(proxies) == {"client-0.shop": 7}


def test_only_problems_of_objects_that_decide_the_request_are_listed():
    here = Problem(Where("web.yaml", 3, "Service shop/web"), "named wrongly")
    elsewhere = Problem(Where("api.yaml", 3, "Service shop/api"), "named wrongly")
    assert told(shop(), "http://web/", [here, elsewhere]) == (here,)
    # Another service, which this request does not call, has the same port of web's pod.
    beside = service("beside", selector=(("app", "web"),), origin=Origin(ObjectKey("Service", "shop", "beside")))
    other = Problem(Where("beside.yaml", 3, "Service shop/beside"), "named wrongly")
    assert told(shop(beside), "http://web/", [here, other]) == (here,)


def test_problems_of_policies_of_the_server_are_listed():
    key = ObjectKey("RequestAuthentication", "shop", "tokens")
    tokens = RequestAuthentication("tokens", "shop", selector=(("app", "web"),), origin=Origin(key))
    wrong = Problem(Where("tokens.yaml", 3, str(key)), "keys cannot be fetched")
    assert told(shop(tokens), "http://web/", [wrong]) == (wrong,)
    assert told(shop(tokens), "http://api/", [wrong]) == ()


def test_problems_of_a_rejected_virtual_service_are_listed_for_its_host():
    key = ObjectKey("VirtualService", "shop", "web")
    wrong = Wrong(
        (Problem(Where("route.yaml", 3, str(key)), "the weights add up to 0"),),
        {key: (VirtualService("web", "shop", ("web.shop.svc.cluster.local",)),)},
    )
    assert answer(shop(), Question("client", "http://web/"), NOW, wrong).problems == wrong.problems
    assert answer(shop(), Question("client", "http://api/"), NOW, wrong).problems == ()


def bound(gateway, namespace="shop", host="other.example"):
    return f"""---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: other, namespace: {namespace}}}
spec: {{hosts: ["{host}"], gateways: [{gateway}], http: [{{route: [{{destination: {{host: web}}}}]}}]}}
"""


@pytest.mark.parametrize(
    ("gateway", "what"),
    [
        ("edge/nowhere", "it has the host other.example, but is bound to edge/nowhere, which edge-0 does not serve"),
        ("mesh", "it has the host other.example, but is only for sidecars"),
        (
            "edge/public",
            "it has the host other.example, but no server of edge/public accepts this host from namespace shop",
        ),
    ],
)
def test_a_host_without_routes_at_a_gateway_gets_the_virtual_services_that_have_the_host(gateway, what):
    stage, _ = stage_of("zzz", bound(gateway), bound("edge/public", host="unlike.example"))
    found = answer(stage, Question("edge", "http://other.example/"), NOW, Wrong()).problems
    assert [(each.where.object, each.what) for each in found] == [("VirtualService shop/other", what)]
