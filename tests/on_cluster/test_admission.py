"""Admission by the API server and our webhooks, with nothing stored: injection, other webhooks beside ours, invalid
reviews, and invalid resources."""

import json
import os

import pytest
import yaml
from tools.kube.api_server import RequestFailed

from inject.pods import apply as patched
from on_cluster import admission
from on_cluster.admission import containers, plain_pod, post, refusal, replicas, review, tried
from on_cluster.mesh import NAMESPACE, until

SETTINGS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/istio-sidecar-injector"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def namespace(mesh):
    """A namespace of the mesh."""
    name = mesh.namespace("admission")
    until(lambda: _has_account(mesh.cluster, name))
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def _has_account(cluster, name):
    return cluster.api.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts")["items"]


# Injection.

# Both, because the API server defaults a missing request to the limit before it calls us.
AMOUNTS = {"requests": {"memory": "100Mi"}, "limits": {"memory": "300Mi"}}
WEB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "labels": {"app": "web", "version": "v2", "note": "costs-5"},
        "annotations": {
            "traffic.sidecar.istio.io/excludeOutboundPorts": "3306",
            "proxy.istio.io/config": "concurrency: 1\nproxyMetadata: {ISTIO_META_COLOR: blue, PRICE: $5}",
            "sidecar.istio.io/proxyCPU": "20m",
        },
    },
    "spec": {
        "initContainers": [{"name": "migrate", "image": "web:1"}],
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}},
                "livenessProbe": {"tcpSocket": {"port": 8080}, "timeoutSeconds": 1, "periodSeconds": 10},
                "startupProbe": {"grpc": {"port": 9000, "service": "ready"}},
                "lifecycle": {"preStop": {"httpGet": {"path": "/stop", "port": 8080, "scheme": "HTTP"}}},
            },
            {"name": "beside", "image": "web:1", "readinessProbe": {"exec": {"command": ["true"]}}},
            {"name": "istio-proxy", "image": "auto", "resources": AMOUNTS},
        ],
    },
}


@pytest.fixture(scope="module")
def printed(mesh, namespace, tmp_path_factory):
    """What `weft kube-inject` prints for the pod, under the settings of this cluster."""
    directory = tmp_path_factory.mktemp("settings")
    values = mesh.cluster.api.request("GET", SETTINGS)["data"]["settings"]
    (directory / "settings.json").write_text(values)
    (directory / "web.yaml").write_text(yaml.safe_dump(WEB))
    text = mesh.weft(
        "kube-inject",
        "-f",
        str(directory / "web.yaml"),
        "--settings",
        str(directory / "settings.json"),
        "-n",
        namespace,
    )
    return yaml.safe_load(text)


def test_the_webhook_patches_a_pod_to_what_kube_inject_prints_byte_for_byte(mesh, namespace, printed):
    """With the same object, which the API server has not changed: no default, no other plugin."""
    for replica in replicas(mesh.cluster):
        status, answer = post(mesh.cluster, replica, "/inject", json.dumps(review(WEB, namespace)).encode())
        assert status == 200
        assert _canonical(patched(WEB, admission.patch_of(answer))) == _canonical(printed)


def test_admission_makes_the_same_pod_as_applying_what_kube_inject_prints(mesh, namespace, printed):
    """Here the API server adds its defaults and its account's token, to one pod before our webhook sees it and to
    the other after. The other bypasses all webhooks, by a label that is then removed from the result. The
    differences are the order of the volumes, the token's random name, the field managers, and the annotation with
    the pod's own settings for our proxy, which has the API server's defaults."""
    ours = {"sidecar.istio.io/inject": "false"}
    offline = {**printed, "metadata": {**printed["metadata"], "labels": {**printed["metadata"]["labels"], **ours}}}
    expected = tried(mesh.cluster, namespace, offline)
    del expected["metadata"]["labels"]["sidecar.istio.io/inject"]
    assert _comparable(tried(mesh.cluster, namespace, WEB)) == _comparable(expected)


def _canonical(value):
    return json.dumps(value, sort_keys=True)


def _comparable(pod):
    token = next(each["name"] for each in pod["spec"]["volumes"] if each["name"].startswith("kube-api-access-"))
    spec = json.loads(json.dumps(pod["spec"]).replace(token, "kube-api-access"))
    spec["volumes"].sort(key=lambda each: each["name"])
    metadata = {field: pod["metadata"][field] for field in ("labels", "annotations")}
    metadata["annotations"].pop("proxy.istio.io/overrides")
    return _canonical({"metadata": metadata, "spec": spec})


def test_a_pod_with_invalid_annotations_is_rejected_with_every_reason(mesh, namespace):
    pod = plain_pod(
        annotations={"traffic.sidecar.istio.io/excludeInboundPorts": "80,http", "sidecar.istio.io/proxyCPU": "much"}
    )
    said = refusal(mesh.cluster, namespace, pod)
    assert "cannot inject a sidecar" in said
    assert f"Pod {namespace}/pod" in said
    assert "excludeInboundPorts" in said and "`http` is not a port" in said
    assert "proxyCPU" in said and "`much` is not an amount" in said


def test_an_unknown_annotation_is_a_warning_on_apply(mesh, namespace, tmp_path):
    pod = plain_pod(annotations={"sidecar.istio.io/proxyCPUs": "1"})
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    said = _complaints(mesh, "apply", "--dry-run=server", f"--namespace={namespace}", "-f", str(tmp_path / "pod.yaml"))
    assert "Warning: " in said
    assert "unknown annotation sidecar.istio.io/proxyCPUs: did you mean" in said


def _complaints(mesh, *arguments):
    """kubectl's stderr, whether or not it fails."""
    import subprocess

    from tools.kube import build

    command = [build.path("kubectl"), f"--kubeconfig={mesh.cluster.kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr


# Other webhooks beside ours.

ADDED = {
    "name": "added",
    "image": "added:1",
    "readinessProbe": {"httpGet": {"path": "/ready", "port": 9999}},
    "volumeMounts": [{"name": "added", "mountPath": "/added"}],
}


def adding(pod):
    """Adds a container with a probe, and a volume; and a variable to our proxy, if it is there already."""
    spec = pod["spec"]
    operations = []
    if not any(each["name"] == "added" for each in spec["containers"]):
        operations.append({"op": "add", "path": "/spec/containers/-", "value": ADDED})
        volume = {"name": "added", "emptyDir": {}}
        operations.append({"op": "add", "path": "/spec/volumes/-", "value": volume})
    for place, each in enumerate(spec.get("initContainers", ())):
        if each["name"] == "istio-proxy" and not any(one["name"] == "ADDED" for one in each["env"]):
            variable = {"name": "ADDED", "value": "by another"}
            operations.append({"op": "add", "path": f"/spec/initContainers/{place}/env/-", "value": variable})
    return operations


@pytest.fixture(scope="module")
def beside_another(mesh, namespace, tmp_path_factory):
    """The same pod with the other webhook before ours and after it: the API server orders them by name."""
    found = {}
    for word in ("a", "z"):
        directory = tmp_path_factory.mktemp("hook")
        name = f"{word}-another-{os.getpid()}"
        with admission.webhook(mesh.cluster, directory, name, adding, namespaces=[namespace]):
            until(lambda: "added" in containers(tried(mesh.cluster, namespace, WEB)))
            found[word] = tried(mesh.cluster, namespace, WEB)
    return found


@pytest.mark.parametrize("word", ["a", "z"])
def test_a_container_of_another_webhook_is_in_the_mesh_in_either_webhook_order(beside_another, word):
    pod = beside_another[word]
    found = containers(pod)
    assert found["added"]["readinessProbe"]["httpGet"]["path"] == "/app-health/added/readyz"
    assert found["added"]["readinessProbe"]["httpGet"]["port"] == 15020
    variables = {each["name"]: each.get("value") for each in found["istio-proxy"]["env"]}
    assert variables["ISTIO_META_APP_CONTAINERS"] == "web,beside,added"
    assert "/app-health/added/readyz" in variables["ISTIO_KUBE_APP_PROBERS"]
    bootstrap = found["istio-proxy"]["args"][1]
    assert "/app-health/added/readyz" in bootstrap and "9999" in bootstrap
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["istio-init", "istio-proxy", "migrate"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["web", "beside", "added"]


@pytest.mark.parametrize("word", ["a", "z"])
def test_what_another_webhook_changes_in_our_proxy_stays(beside_another, word):
    assert {"name": "ADDED", "value": "by another"} in containers(beside_another[word])["istio-proxy"]["env"]


def test_both_orders_of_webhooks_end_with_the_same_pod(beside_another):
    assert _comparable(_sorted_variables(beside_another["a"])) == _comparable(_sorted_variables(beside_another["z"]))


def _sorted_variables(pod):
    """The other webhook's variable may come before or after those that we write again."""
    containers(pod)["istio-proxy"]["env"].sort(key=lambda each: each["name"])
    return pod


# Invalid reviews.


def _bad_reviews():
    good = review(plain_pod(), "any")
    return {
        "nothing": (b"", 400, "not an AdmissionReview"),
        "garbage": (b"\xff\x00garbage", 400, "not an AdmissionReview"),
        "half of one": (json.dumps(good).encode()[:-20], 400, "not an AdmissionReview"),
        "a list": (b"[]", 400, "not an AdmissionReview"),
        "too deep": (b"[" * 200_000, 400, "not an AdmissionReview"),
        "of v1beta1": (
            _with(good, apiVersion="admission.k8s.io/v1beta1"),
            400,
            "expected AdmissionReview of admission",
        ),
        "of another kind": (_with(good, kind="TokenReview"), 400, "not TokenReview of admission.k8s.io/v1"),
        "without a request": (_with(good, request=None), 400, "has no request"),
        "too large": (b" " * (4 * 1024 * 1024), 413, "3145728"),
    }


def _with(document, **changes):
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize("path", ["/inject", "/validate"])
def test_an_invalid_review_gets_a_reason_and_the_webhook_continues(mesh, path):
    replica = replicas(mesh.cluster)[0]
    for name, (body, status, reason) in _bad_reviews().items():
        said, text = post(mesh.cluster, replica, path, body)
        assert said == status, (name, said, text)
        assert reason in text, (name, text)
    said, text = post(mesh.cluster, replica, path, json.dumps(review(plain_pod(), "any")).encode(), kind="text/yaml")
    assert said == 415 and "expected application/json, not text/yaml" in text
    said, text = post(mesh.cluster, replica, path, json.dumps(review(plain_pod(), "any")).encode())
    assert said == 200 and json.loads(text)["response"]["allowed"] is True


@pytest.mark.parametrize(
    "pod",
    [{}, {"metadata": None, "spec": None}, {"metadata": {}, "spec": {"containers": "all"}},
     {"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{}]}},
     {"metadata": {}, "spec": {"containers": [{"name": "a", "readinessProbe": [], "env": {}}]}},
     {"metadata": {}, "spec": {"containers": [{"name": "a", "lifecycle": "x", "ports": [1, {"containerPort": "x"}]}]}}],
)  # fmt: skip
def test_a_pod_that_no_api_server_would_send_gets_a_response(mesh, pod):
    status, text = post(mesh.cluster, replicas(mesh.cluster)[0], "/inject", json.dumps(review(pod, "any")).encode())
    assert status == 200, text
    answer = json.loads(text)["response"]
    assert answer["uid"] == "1"
    assert "internal error of weft" not in text


def test_objects_other_than_pods_are_admitted(mesh):
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}
    asked = review({"metadata": {"name": "web"}}, "any", kind=kind)
    status, text = post(mesh.cluster, replicas(mesh.cluster)[0], "/inject", json.dumps(asked).encode())
    assert status == 200
    assert json.loads(text)["response"] == {"uid": "1", "allowed": True}


# Invalid resources.

WRONG = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: split, namespace: NAMESPACE}
spec:
  hosts: [web]
  http:
  - route:
    - destination: {host: web}
    match:
    - uri: {regex: "/items/[0-9"}
"""


def test_an_invalid_resource_is_rejected_with_the_errors_of_weft_validate(mesh, namespace, tmp_path):
    wrong = yaml.safe_load(WRONG.replace("NAMESPACE", namespace))
    (tmp_path / "split.yaml").write_text(yaml.safe_dump(wrong))
    told = mesh.weft("validate", str(tmp_path / "split.yaml"), check=False)
    words = next(line for line in told.splitlines() if "regex" in line)
    what = words.partition("http[0]")[2]
    assert what, told
    said = _complaints(mesh, "apply", "--dry-run=server", "-f", str(tmp_path / "split.yaml"))
    assert "denied the request" in said
    assert what in said, (what, said)


def test_every_served_version_of_a_kind_is_validated(mesh, namespace):
    for version in ("v1", "v1beta1", "v1alpha3"):
        wrong = yaml.safe_load(WRONG.replace("NAMESPACE", namespace).replace("istio.io/v1", f"istio.io/{version}"))
        with pytest.raises(RequestFailed, match="is not a regular expression"):
            mesh.cluster.api.request("POST", f"{_services(namespace, version)}?dryRun=All", wrong)


def test_a_stored_invalid_object_does_not_block_changes_of_other_fields(mesh, namespace):
    """A label of a missing revision admits an invalid object, as if weft had been down."""
    wrong = yaml.safe_load(WRONG.replace("NAMESPACE", namespace))
    wrong["metadata"]["labels"] = {"istio.io/rev": "nobody"}
    api, path = mesh.cluster.api, _services(namespace)
    api.request("POST", path, wrong)
    relabelled = {"metadata": {"labels": {"istio.io/rev": None, "team": "shop"}}}
    assert api.request("PATCH", f"{path}/split", relabelled, kind=MERGE)["metadata"]["labels"] == {"team": "shop"}
    with pytest.raises(RequestFailed, match="is not a regular expression"):
        api.request("PATCH", f"{path}/split", {"spec": {"hosts": ["shop"]}}, kind=MERGE)
    api.request("DELETE", f"{path}/split")


def _services(namespace, version="v1"):
    return f"/apis/networking.istio.io/{version}/namespaces/{namespace}/virtualservices"


def test_the_webhooks_cover_only_kinds_of_the_mesh(mesh):
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    for configuration in mesh.cluster.api.request("GET", configurations)["items"]:
        for each in configuration["webhooks"]:
            groups = {group for rule in each["rules"] for group in rule["apiGroups"]}
            assert all(group.endswith(".istio.io") for group in groups), groups
            assert {word for rule in each["rules"] for word in rule["operations"]} == {"CREATE", "UPDATE"}
