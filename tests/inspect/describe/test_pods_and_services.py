"""Tests of the facts about a pod or a service."""

import msgspec
import pytest

from model.builders import instance, put, service
from weft.base.ambiguous import Ambiguous
from weft.base.problem import Problem, Where
from weft.inspect.describe.pods_and_services import (
    NoSuchService,
    decided,
    describe_pod,
    describe_service,
    find_service,
    members_of,
    unready,
)
from weft.inspect.stage import NoSuchWorkload, Stage
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.request_authentication import JwtRule, RequestAuthentication
from weft.model.sidecar import Sidecar
from weft.model.telemetry import Telemetry
from weft.model.workload import Workload

ROOT = "istio-system"
INJECT = "sidecar.istio.io/inject"


@pytest.fixture
def mesh():
    made = Mesh()
    put(made, service("app"), service("other"), service("app", "elsewhere"))
    for version, meshed in (("v1", True), ("v2", False)):
        pod = instance(
            f"app-{version}", "app", labels={"version": version}, meshed=meshed, address=f"10.0.0.{version[1]}"
        )
        made.apply(ObjectKey("Pod", "shop", pod.name), (pod,))
    return made


def pod(mesh, word="app-v1", problems=()):
    return describe_pod(mesh, Stage(mesh), problems, word)


def test_a_pod_has_an_identity_by_its_proxy_and_the_services_that_select_it(mesh):
    told = pod(mesh)
    assert told.identity == "spiffe://cluster.local/ns/shop/sa/default"
    assert [each.host for each in told.services] == ["app.shop.svc.cluster.local"]
    (port,) = told.services[0].ports
    assert (port.number, port.protocol, port.target, port.served) == (80, "http", 8080, True)


def test_a_pod_without_a_proxy_has_no_identity_and_no_policies(mesh):
    put(mesh, AuthorizationPolicy("guard", "shop"))
    told = pod(mesh, "app-v2")
    assert (told.identity, told.modes, told.authorization) == ("", (), ())
    assert "check-inject" in told.proxy.why


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "a Workload has one by default"),
        ({"labels": labels_of({INJECT: "false"})}, f"its label {INJECT} is false"),
        ({"annotations": labels_of({INJECT: "false"})}, f"its annotation {INJECT} is false"),
    ],
)
def test_the_reason_for_injection_comes_from_the_workloads_label_or_annotation(mesh, said, why):
    key = ObjectKey("Workload", "shop", "job")
    origin = Origin(key, file="job.yaml", line=3)
    mesh.apply(key, (Workload("job", "shop", ("x",), inject=not said, origin=origin, **said),))
    made = instance("job-0", "job", meshed=not said, origin=origin, workload="job", address="10.0.0.9")
    mesh.apply(ObjectKey("Pod", "shop", "job-0"), (made,))
    told = pod(mesh, "job-0").proxy
    assert (told.has, told.why) == (not said, why)
    assert (told.where.file, told.where.line) == ("job.yaml", 3)


def test_each_port_names_the_policy_that_decides_there(mesh):
    put(mesh, PeerAuthentication("default", ROOT, mode=TlsMode.STRICT))
    labels = labels_of({"app": "app"})
    put(mesh, PeerAuthentication("door", "shop", selector=labels, ports=((8080, TlsMode.DISABLE), (9090, None))))
    told = [(each.port, each.mode, each.decided_by.object) for each in pod(mesh).modes]
    assert told == [
        (8080, "DISABLE", "PeerAuthentication shop/door"),
        (9090, "STRICT", "PeerAuthentication istio-system/default"),
        (0, "STRICT", "PeerAuthentication istio-system/default"),
    ]


def test_by_default_no_policy_decides_the_mode(mesh):
    assert [(each.mode, each.decided_by) for each in pod(mesh).modes] == [("PERMISSIVE", None)] * 2
    assert decided(mesh, instance("x", "x")) is None


def test_policies_that_apply_are_summarized(mesh):
    put(
        mesh,
        AuthorizationPolicy("a", "shop", rules=(AuthorizationRule(), AuthorizationRule())),
        AuthorizationPolicy("b", "shop", action=Action.DENY, dry_run=True),
        AuthorizationPolicy("c", "shop", action=Action.CUSTOM, provider="opa", rules=(AuthorizationRule(),)),
        AuthorizationPolicy("d", "shop", refused=True),
        AuthorizationPolicy("gateway", "shop", targets=("Gateway x",)),
        AuthorizationPolicy("others", "shop", selector=labels_of({"app": "other"})),
        RequestAuthentication("tokens", "shop", rules=(JwtRule("https://issuer.example"),)),
        Sidecar("default", "shop"),
        Telemetry("logs", "shop"),
    )
    told = pod(mesh)
    assert [each.says for each in told.authorization] == [
        "ALLOW, 2 rules",
        "DENY, no rule: it matches nothing, a dry run",
        "CUSTOM, 1 rule, opa decides",
        "rejected: it denies every request",
    ]
    assert [each.says for each in told.authentication] == ["accepts tokens of https://issuer.example"]
    assert told.sidecar.object == "Sidecar shop/default"
    assert [each.object for each in told.telemetry] == ["Telemetry shop/logs"]


def test_only_problems_of_the_pods_objects_are_listed(mesh):
    ours = Problem(Where(object="Service shop/app"), "wrong")
    others = Problem(Where(object="Service shop/other"), "wrong, too")
    assert pod(mesh, problems=(ours, others)).problems == (ours,)
    assert describe_service(mesh, (ours, others), "app", "shop").problems == (ours,)


def test_an_unknown_name_raises_a_problem_with_a_hint(mesh):
    with pytest.raises(NoSuchWorkload):
        pod(mesh, "nobody")
    with pytest.raises(NoSuchService) as raised:
        find_service(mesh, "ap")
    assert "did you mean" in raised.value.problem.hint


@pytest.mark.parametrize("word", ["app.elsewhere", "elsewhere/app", "svc/app.elsewhere", "app.elsewhere.svc"])
def test_a_service_is_found_by_any_of_its_names(mesh, word):
    assert find_service(mesh, word).namespace == "elsewhere"
    assert find_service(mesh, "app", "elsewhere").namespace == "elsewhere"
    assert find_service(mesh, "app.elsewhere.svc.cluster.local").namespace == "elsewhere"


def test_a_service_name_in_two_namespaces_is_ambiguous(mesh):
    with pytest.raises(Ambiguous) as raised:
        find_service(mesh, "app")
    assert raised.value.problem.what == "`app` is in several namespaces: elsewhere, shop"
    assert find_service(mesh, "other").namespace == "shop"


def test_a_service_lists_its_pods(mesh):
    told = describe_service(mesh, (), "app", "shop")
    assert [(each.name, each.proxy) for each in told.members] == [("app-v1.shop", True), ("app-v2.shop", False)]
    assert [(each.port, each.mode) for each in told.members[0].modes] == [(8080, "PERMISSIVE")]
    assert [each.name for each in members_of(mesh, find_service(mesh, "app", "shop"))] == ["app-v1", "app-v2"]
    assert describe_service(mesh, (), "other").members == ()


def test_a_named_port_that_no_pod_has_is_marked(mesh):
    put(mesh, service("app", target="web"))
    assert [(each.target, each.served) for each in pod(mesh).services[0].ports] == [("web", False)]


def test_an_unready_pod_is_a_problem_with_the_next_command():
    late = instance("late-0", "app", workload="late", ready=False)
    of_cluster = msgspec.structs.replace(late, name="late-1", origin=Origin(ObjectKey("Pod", "shop", "late-1")))
    found = [(str(each.where), each.what, each.hint) for each in unready((late, instance("app-0", "app"), of_cluster))]
    assert found == [
        ("", "late-0.shop is not ready: it gets no requests", "find out why: weft ps, weft logs late"),
        (
            "Pod shop/late-1",
            "late-1.shop is not ready: it gets no requests",
            "find out why: kubectl describe pod late-1 -n shop",
        ),
    ]
    mesh = Mesh()
    put(mesh, service("app"), late)
    assert [each.what for each in describe_service(mesh, (), "app").problems] == [found[0][1]]
