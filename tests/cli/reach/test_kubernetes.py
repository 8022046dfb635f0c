"""Which pods are found on a cluster, with a real API server whose pods have the status Running but no containers."""

import click
import msgspec
import pytest

from weft.base.ambiguous import AMBIGUOUS, Ambiguous, in_several_namespaces
from weft.cli.reach import control_pods
from weft.cli.reach import kubernetes as reach_kubernetes
from weft.cli.reach.kubernetes import ClusterReach, _selector
from weft.kube.port_forward import ForwardedResponse

LABELS = {"app": "web"}


def pod(name, *, labels=LABELS, ready=True, phase="Running", containers=("istio-proxy",), sidecars=()):
    def made(each):
        return {"name": each, "image": "x"}

    spec = {
        "containers": [made(each) for each in ("app", *containers)],
        "initContainers": [made(each) for each in sidecars],
    }
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


PODS = [
    pod("web-a", ready=False),
    pod("web-b"),
    pod("web-c", phase="Pending"),
    pod("bare-a", labels={"app": "bare"}, containers=()),
    pod("early-a", labels={"app": "early"}, containers=(), sidecars=("istio-proxy",)),
]


def workload(kind, name, labels):
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def namespace(api_server):
    name = api_server.make_namespace("reach")
    api_server.make_default_account(name)
    core, apps = f"/api/v1/namespaces/{name}", f"/apis/apps/v1/namespaces/{name}"
    for each in PODS:
        api_server.request("POST", f"{core}/pods", {key: value for key, value in each.items() if key != "status"})
        path = f"{core}/pods/{each['metadata']['name']}/status"
        api_server.request("PATCH", path, {"status": each["status"]}, kind="application/merge-patch+json")
    api_server.request("POST", f"{apps}/deployments", workload("Deployment", "web", LABELS))
    api_server.request("POST", f"{apps}/statefulsets", {**workload("StatefulSet", "early", {"app": "early"})})
    api_server.request("POST", f"{apps}/deployments", workload("Deployment", "empty", {"app": "empty"}))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": LABELS, "ports": [{"port": 80}]},
    }
    api_server.request("POST", f"{core}/services", service)
    return name


@pytest.fixture
def reach(api_server):
    found = ClusterReach(api_server.kubeconfig)
    yield found
    found.close()


@pytest.mark.parametrize("word", ["web-b", "pod/web-b", "deploy/web", "web", "svc/web"])
def test_finds_a_pod_by_any_of_its_names_a_ready_one_first(reach, namespace, word):
    assert str(reach.find(f"{word}.{namespace}")) == f"web-b.{namespace}"
    assert str(reach.find(word, namespace)) == f"web-b.{namespace}"


def test_all_pods_of_a_workload_are_those_that_run(reach, namespace):
    assert [each.name for each in reach.find_all("deploy/web", namespace)] == ["web-a", "web-b"]


def test_pods_are_found_by_labels_too(reach, namespace, capsys):
    selector = ",".join(f"{name}={value}" for name, value in LABELS.items())
    assert [each.name for each in reach.find_labelled(selector, namespace)] == ["web-a", "web-b"]
    with pytest.raises(click.exceptions.Exit):
        reach.find_labelled("app=nobody", namespace)
    assert f"kubectl get pods -n {namespace} --show-labels" in capsys.readouterr().err


def test_a_sidecar_that_starts_early_is_a_proxy_too(reach, namespace):
    assert reach.find("sts/early", namespace).name == reach.find("early", namespace).name == "early-a"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nobody", "there is no pod or workload `nobody`"),
        ("pod/web", "there is no pod `web`"),
        ("deploy/nobody", "there is no deployment `nobody`"),
        ("deploy/empty", "deploy/empty has no pods"),
        ("web-c", "no pod of `web-c` is running"),
        ("bare-a", "`bare-a` has no proxy"),
    ],
)
def test_a_proxy_that_cannot_be_queried_is_an_error_with_the_next_step(reach, namespace, word, said, capsys):
    with pytest.raises(click.exceptions.Exit):
        reach.find(word, namespace)
    told = capsys.readouterr().err
    assert (said in told and f"-n {namespace}" in told) or "get namespace" in told


def test_without_a_namespace_the_kubeconfigs_is_meant(reach, capsys):
    with pytest.raises(click.exceptions.Exit):
        reach.find("nobody")
    told = capsys.readouterr().err
    assert "in namespace default" in told and "-n NAMESPACE" in told


def test_names_for_a_shell_are_of_the_kubeconfigs_namespace(reach, namespace):
    assert not [name for name in reach.names() if name.endswith(f".{namespace}")]


def test_a_selector_is_written_as_the_api_reads_it():
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "NotIn", "values": ["3"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    assert (
        _selector({"matchLabels": {"app": "x"}, "matchExpressions": expressions}) == "app=x,a in (1,2),b notin (3),c,!d"
    )
    assert _selector({"app": "x", "version": "v1"}) == "app=x,version=v1"
    assert _selector({}) == ""


def test_a_name_that_is_in_two_namespaces_is_not_taken_for_a_failure(monkeypatch):
    problem = in_several_namespaces("web", ["bank", "shop"]).problem

    async def answered(*_asked):
        return ForwardedResponse(AMBIGUOUS, msgspec.json.encode(problem))

    async def token(*_asked):
        return "token"

    monkeypatch.setattr(reach_kubernetes, "client", lambda *_asked: None)
    monkeypatch.setattr(control_pods, "token", token)
    monkeypatch.setattr(control_pods, "debug_page", answered)
    with pytest.raises(Ambiguous) as caught:
        ClusterReach().ask("explain", replica="weft-0")
    assert caught.value.problem == problem
