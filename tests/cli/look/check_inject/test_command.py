"""Which webhook injects a pod, compared with the webhook that a real API server calls."""

import itertools
import json
import re

import click
import pytest
from click.testing import CliRunner
from tools.kube.api_server import RequestFailed

from weft.cli.look.check_inject import command as check_inject
from weft.cli.main import app
from weft.install.namespace import config_maps
from weft.install.values import Values
from weft.install.webhooks import injector

_numbers = itertools.count()  # a deleted namespace takes a while to go away
INJECT = "sidecar.istio.io/inject"


@pytest.mark.root
@pytest.mark.parametrize("command", [("check-inject",), ("x", "check-inject")])
def test_a_workload_of_this_machine_decides_for_itself(weft, mesh, command):
    done = weft(*command, "talker-0.shop", "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    head, row = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
    assert head == ["WEBHOOK", "REVISION", "INJECTED", "REASON"]
    assert row[:3] == ["-", "-", "✔"]
    assert re.fullmatch(r"a Workload has one by default: Workload shop/talker \(\S*mesh.yaml:1\)", row[3])
    assert weft(*command, "-l", "a=b", "--mesh", mesh).returncode == 2


@pytest.mark.parametrize("arguments", [[], ["web", "-l", "a=b"], ["web", "--file", "x.yaml"]])
def test_exactly_one_pod_must_be_given(weft, arguments):
    done = weft("check-inject", *arguments)
    assert done.returncode == 2
    assert "no pod is given, or more than one" in done.stderr


def test_labels_are_pairs():
    assert check_inject._labels("a=b, c=") == {"a": "b", "c": ""}
    for wrong in ("a", "=b", ","):
        with pytest.raises(click.exceptions.Exit):
            check_inject._labels(wrong)


FILES = """\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
# what people see
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: x}]}
---
apiVersion: v1
kind: Pod
metadata: {name: old}
"""


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Neither a mesh nor a cluster."""
    for name, value in (("WEFT_RUN_DIR", str(tmp_path)), ("HOME", str(tmp_path)), ("KUBECONFIG", "")):
        monkeypatch.setenv(name, value)
    (tmp_path / "web.yaml").write_text(FILES)
    return lambda *arguments: CliRunner().invoke(app, ["check-inject", *map(str, arguments)], prog_name="weft")


def test_files_need_neither_a_cluster_nor_a_mesh(alone, tmp_path):
    done = alone("-f", tmp_path)
    assert done.exit_code == 0
    head, *rows = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
    assert head == ["OBJECT", "WHERE", "WEBHOOK", "REVISION", "INJECTED", "REASON"]
    assert [(row[0], row[1].rpartition("/")[2], *row[3:]) for row in rows] == [
        (
            *("Deployment shop/web", "web.yaml:6", "default", "✔"),
            "a label of the namespace, or the pod's revision label, enables injection",
        ),
        (
            *("Pod default/old", "web.yaml:14", "default", "✘"),
            "neither namespace default nor the pod has a label that enables injection",
        ),
    ]
    assert done.stderr == (
        "namespace default is not in the files: it is assumed to have no labels\n"
        "hint: give the file of the Namespace too, or use a cluster: --kubernetes\n"
    )


def test_files_are_for_programs_too(alone, tmp_path):
    told = json.loads(alone("-f", tmp_path / "web.yaml", "-n", "shop", "-o", "json").stdout)
    assert [(each["object"], each["where"].rpartition("/")[2], each["injected"]) for each in told] == [
        ("Deployment shop/web", "web.yaml:6", True),
        ("Pod shop/old", "web.yaml:14", True),
    ]


def test_another_revision_would_not_inject_them(alone, tmp_path):
    (row, *_) = json.loads(alone("-f", tmp_path / "web.yaml", "-r", "canary", "-o", "json").stdout)
    assert (row["revision"], row["injected"]) == ("canary", False)
    assert row["reason"] == "namespace shop has the label istio-injection, which belongs to revision default"


def test_files_are_of_no_mesh(alone, tmp_path):
    assert alone("-f", tmp_path, "--mesh", "shop", "--kubernetes").exit_code == 2


def test_a_running_pod_that_differs_from_a_new_one_is_reported(capsys):
    from weft.cli.look.check_inject.webhooks import InjectionVerdict

    yes, no = InjectionVerdict("a", "default", True, ""), InjectionVerdict("b", "default", False, "")
    bare = {"spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Running"}}
    meshed = {**bare, "spec": {"containers": [{"name": "istio-proxy"}]}}
    for pod, verdicts, said in (
        (bare, [yes], "has no proxy, but a new pod would get one"),
        (meshed, [no], "has a proxy, but a new pod would get none"),
        (meshed, [yes, yes], "several webhooks inject this pod: a, a"),
    ):
        check_inject._tell(pod, verdicts)
        assert said in capsys.readouterr().err
    check_inject._tell(bare, [no])
    check_inject._tell({}, [yes])
    assert not capsys.readouterr().err


@pytest.fixture
def webhooks(cluster_cli):
    """The webhooks of two revisions, without servers that respond."""
    server = cluster_cli.server
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    system = server.make_namespace(f"inject-system-{next(_numbers)}")
    made = [injector(Values(namespace=system, revision=revision)) for revision in ("default", "canary")]
    settings = config_maps(Values(namespace=system))[1]
    server.request("POST", f"/api/v1/namespaces/{system}/configmaps", settings)
    for each in made:
        server.request("POST", path, each)
    yield
    for each in made:
        server.request("DELETE", f"{path}/{each['metadata']['name']}")


def test_the_webhooks_in_the_verdict_are_those_that_the_api_server_calls(cluster_cli, webhooks):
    server = cluster_cli.server
    spaces = {
        "inject-plain": {},
        "inject-on": {"istio-injection": "enabled"},
        "inject-off": {"istio-injection": "disabled"},
        "inject-canary": {"istio.io/rev": "canary"},
    }
    for name, labels in spaces.items():
        server.make_namespace(name, labels)
    for name in spaces:
        for labels in ({"app": "web"}, {INJECT: "true"}, {INJECT: "false"}, {"istio.io/rev": "canary"}):
            written = ",".join(f"{key}={value}" for key, value in labels.items())
            done = cluster_cli("check-inject", "-n", name, "-l", written, "-o", "json")
            assert done.returncode == 0, done.stderr
            told = {each["webhook"] for each in json.loads(done.stdout) if each["injected"]}
            assert told == asked(server, name, labels), (name, labels, done.stdout)


def asked(server, namespace, labels):
    """Return the webhook that rejects a new pod, because it does not respond."""
    pod = {
        "metadata": {"name": "tried", "labels": labels},
        "spec": {"containers": [{"name": "app", "image": "x"}]},
    }
    try:
        server.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    except RequestFailed as failed:
        service = re.search(r"https://(istiod[-\w]*)\.inject-system-\d+\.svc", str(failed))
        assert service, failed
        return {service[1].replace("istiod", "istio-sidecar-injector")}
    return set()


def test_a_workload_of_a_cluster_is_found_by_its_name(cluster_cli, webhooks):
    server = cluster_cli.server
    server.make_namespace("inject-named", {"istio-injection": "enabled"})
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    server.request(
        "POST", "/apis/apps/v1/namespaces/inject-named/deployments", {"metadata": {"name": "web"}, "spec": spec}
    )
    for word in ("deploy/web", "web", "web.inject-named"):
        done = cluster_cli("check-inject", word, "-n", "inject-named")
        assert done.returncode == 0, done.stderr
        rows = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
        assert [row[:3] for row in rows[1:]] == [
            ["istio-sidecar-injector", "default", "✔"],
            ["istio-sidecar-injector-canary", "canary", "✘"],
        ]
        assert rows[1][3] == "Namespace label istio-injection=enabled matches"
        assert "istio-sidecar-injector: warning [WFT0815]: the configuration has no caBundle" in done.stderr
    for word, words in (("nobody", "there is no pod or workload `nobody`"), ("svc/web", "is not a workload")):
        done = cluster_cli("check-inject", word, "-n", "inject-named")
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
    assert "there is no namespace nowhere" in cluster_cli("check-inject", "-l", "a=b", "-n", "nowhere").stderr
