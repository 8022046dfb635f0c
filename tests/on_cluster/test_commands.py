"""The commands that inspect a mesh, on a whole cluster, compared with the API server, with responses on the wire,
and with Envoy."""

import io
import json
import re
import tarfile

import pytest
from tools.kube.process import Failed

from on_cluster import apps
from on_cluster.mesh import NAMESPACE, until
from on_cluster.test_proxy_config import envoy
from weft import __version__

CALL = """
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    print(opener.open(urllib.request.Request(sys.argv[2], method=sys.argv[1]), timeout=10).status)
except urllib.error.HTTPError as failed:
    print(failed.code)
except OSError:
    print(0)
"""


@pytest.fixture(scope="module")
def namespace(mesh):
    """`orders` calls `web`, with GET alone and not /slow, and `misled`, which a rule makes it call in plaintext;
    `bare` has no proxy. Everything is STRICT."""
    name = mesh.namespace("commands")
    host = f"misled.{name}.svc.cluster.local"
    to_web = {"route": [{"destination": {"host": "web", "subset": "v1"}}]}
    abort = {"abort": {"httpStatus": 418, "percentage": {"value": 100}}}
    slow = {"match": [{"uri": {"prefix": "/slow"}}], "fault": abort, **to_web}
    allowed = {
        "from": [{"source": {"principals": [f"cluster.local/ns/{name}/sa/orders"]}}],
        "to": [{"operation": {"methods": ["GET"]}}],
    }
    server = apps.python("app", apps.SERVE, "8080", resources={"limits": {"memory": "128Mi"}})
    mesh.cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "orders", "namespace": name}}
    )
    mesh.apply(
        apps.strict(name),
        apps.of_kind("apps/v1", "Deployment", name, "web", {"replicas": 1, **apps.template("web", apps.spec(server))}),
        apps.service(name, "web", ("http", 80, 8080)),
        apps.service(name, "misled", ("http", 80, 8080), selector={"app": "web"}),
        apps.pod(name, "orders", apps.python("app", apps.SERVE, "8080"), serviceAccountName="orders"),
        apps.pod(name, "bare", apps.python("app", apps.SERVE, "8080"), labels={"sidecar.istio.io/inject": "false"}),
        of_istio("networking", "VirtualService", name, "web", {"hosts": ["web"], "http": [slow, to_web]}),
        of_istio(
            "networking",
            "DestinationRule",
            name,
            "web",
            {"host": "web", "subsets": [{"name": "v1", "labels": {"app": "web"}}]},
        ),
        of_istio(
            "networking",
            "DestinationRule",
            name,
            "misled",
            {"host": host, "trafficPolicy": {"tls": {"mode": "DISABLE"}}},
        ),
        of_istio(
            "security",
            "AuthorizationPolicy",
            name,
            "web",
            {"selector": {"matchLabels": {"app": "web"}}, "rules": [allowed]},
        ),
        of_istio(
            "security",
            "AuthorizationPolicy",
            name,
            "nobody",
            {"selector": {"matchLabels": {"app": "nothing"}}, "rules": [{}]},
        ),
    )
    mesh.rolled_out(name)
    mesh.wait(name, "pod/orders", "pod/bare")
    until(lambda: called(mesh, name, "orders", "GET", "http://web/") == 200)
    until(lambda: called(mesh, name, "orders", "GET", "http://web/slow") == 418)
    until(lambda: called(mesh, name, "orders", "POST", "http://web/") == 403)
    until(lambda: called(mesh, name, "orders", "GET", "http://misled/") == 503)
    until(lambda: called(mesh, name, "bare", "GET", "http://web/") == 0)
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")


def of_istio(group, kind, namespace, name, spec):
    return apps.of_kind(f"{group}.istio.io/v1", kind, namespace, name, spec)


def called(mesh, namespace, pod, method, url):
    """The status that a pod gets; 0 without a response."""
    words = ["exec", f"--namespace={namespace}", pod, "-c", "app", "--", "python3", "-c", CALL, method, url]
    try:
        return int(mesh.kubectl(*words))
    except Failed:
        return None


def web(mesh, namespace):
    (pod,) = apps.get(mesh.cluster, "pods", namespace, selector="app=web")
    return pod


def test_describe_pod_shows_its_identity_and_its_routes(mesh, namespace):
    pod = web(mesh, namespace)
    said = mesh.weft("describe", "pod", f"{pod['metadata']['name']}.{namespace}", only_output=True)
    shown = envoy(mesh, namespace, pod["metadata"]["name"], "/certs")["certificates"][0]["cert_chain"][0]
    (identity,) = re.findall(r"Identity: (\S+)", said)
    assert [{"uri": identity}] == shown["subject_alt_names"]
    assert f"Addresses: {pod['status']['podIP']}\n" in said
    assert "Proxy: yes, it was injected when the pod was created" in said
    assert f"Port 8080: STRICT, only mutual TLS is accepted; PeerAuthentication {namespace}/default" in said
    assert called(mesh, namespace, "bare", "GET", f"http://{pod['status']['podIP']}:8080/") == 0
    assert f"AuthorizationPolicy {namespace}/web: ALLOW, 1 rule" in said
    assert f"VirtualService: {namespace}/web" in said and "path starts with /slow" in said
    assert "Proxy: none" in mesh.weft("x", "describe", "pod", "bare", "-n", namespace, only_output=True)


def test_describe_service_shows_its_addresses_and_pods(mesh, namespace):
    said = mesh.weft("describe", "svc", f"web.{namespace}", only_output=True)
    assert f"Addresses: {apps.get(mesh.cluster, 'service', namespace, 'web')['spec']['clusterIP']}\n" in said
    assert f"{web(mesh, namespace)['metadata']['name']}.{namespace}: ready, with a proxy, subset v1" in said
    assert "Port: http 80/HTTP targets pod port 8080" in said


def test_tls_check_shows_whether_both_sides_agree(mesh, namespace):
    def checked(name):
        host = f"{name}.{namespace}.svc.cluster.local"
        words = mesh.weft("authn", "tls-check", host, check=False, only_output=True).splitlines()[1]
        return re.split(r" {2,}", words.strip())[1:4]

    assert checked("web") == ["OK", "STRICT", "auto (mTLS)"]
    said = apps.fetched(mesh.cluster, namespace, "orders", f"http://web.{namespace}/")
    assert apps.caller_of(said) == f"spiffe://cluster.local/ns/{namespace}/sa/orders"
    assert checked("misled")[:2] == ["CONFLICT", "STRICT"]
    assert called(mesh, namespace, "orders", "GET", "http://misled/") == 503


def test_check_inject_shows_why_a_pod_has_a_proxy_or_none(mesh, namespace):
    said = mesh.weft("check-inject", f"deploy/web.{namespace}", only_output=True)
    assert re.search(r"istio-sidecar-injector +default +✔ +Namespace label istio-injection=enabled matches", said)
    said = mesh.weft("x", "check-inject", "bare", "-n", namespace, only_output=True)
    assert re.search(r"istio-sidecar-injector +default +✘ +Pod has sidecar.istio.io/inject=false label", said)


def test_audit_counts_workloads_and_finds_policies_that_select_no_workload(mesh, namespace):
    report = json.loads(mesh.weft("audit", "-n", namespace, "-o", "json", check=False, only_output=True))
    sections = {each["name"]: each for each in report["sections"]}
    policies = [found["where"]["object"] for found in sections["policies"]["findings"]]
    assert policies == [f"AuthorizationPolicy {namespace}/nobody"]
    assert any("2 of 3 pods with a proxy" in told for told in sections["namespaces"]["told"])
    assert not sections["without-proxy"]["findings"]  # bare opted out
    assert not sections["plaintext"]["findings"]
    assert sections["certificates"]["told"][0].startswith("2 certificates of proxies")
    row = next(each for each in report["memory"] if each["workload"] == "web")
    assert (row["application"], row["proxy_from"]) == (128 << 20, "measured") and 0 < row["share"] < 1


def test_bug_report_has_every_proxy_and_no_secret(mesh, namespace, tmp_path):
    archive = tmp_path / "report.tar.gz"
    mesh.weft("bug-report", "-o", str(archive), "-n", namespace)
    with tarfile.open(archive) as file:
        held = {each.name: file.extractfile(each).read() for each in file if each.isfile()}
    for pod in (web(mesh, namespace)["metadata"]["name"], "orders"):
        assert [name for name in held if pod in name], sorted(held)
    assert any(b"VirtualService" in body for body in held.values())
    kept = apps.get(mesh.cluster, "secret", NAMESPACE, "istio-ca-secret")["data"]
    everything = io.BytesIO(b"".join(held.values())).getvalue()
    assert b"PRIVATE KEY" not in everything and b"eyJhbGciOi" not in everything
    assert not [name for name, body in kept.items() if name == "authority.json" and body.encode() in everything]


@pytest.mark.parametrize(
    ("caller", "method", "path", "says", "status"),
    [
        ("orders", "GET", "/", "→ delivered: the call reaches web-", 200),
        ("orders", "GET", "/slow", "→ answered 418: a fault is injected", 418),
        ("orders", "POST", "/", "→ denied 403: a policy denies the request", 403),
        ("bare", "GET", "/", "→ closed: ", 0),
    ],
)
def test_explain_predicts_the_outcome_of_a_request(mesh, namespace, caller, method, path, says, status):
    url = f"http://web.{namespace}{path}"
    said = mesh.weft("explain", f"{caller}.{namespace}", "--to", url, "-X", method, check=False, only_output=True)
    assert said.splitlines()[-1].startswith(says), said
    assert called(mesh, namespace, caller, method, url) == status
    if status == 403:
        assert re.search(rf"\[AuthorizationPolicy {namespace}/web rule\[0\] \(version \d+\)\]", said)


def test_why_names_the_objects_behind_a_resource(mesh, namespace):
    def why(resource):
        return mesh.weft("why", f"orders.{namespace}", resource, only_output=True)

    said = why(f"outbound|80|v1|web.{namespace}.svc.cluster.local")
    for kind in ("Service", "DestinationRule"):
        assert len(re.findall(rf"^    {kind} {namespace}/web .*\(version \d+\)$", said, re.MULTILINE)) >= 2, said
    assert "weft's default" not in said
    assert f"    VirtualService {namespace}/web " in why("80")


def test_history_shows_what_changed(mesh, namespace):
    sidecar = of_istio("networking", "Sidecar", namespace, "default", {"egress": [{"hosts": ["*/*"]}]})
    mesh.apply(sidecar)

    def last():
        lines = mesh.weft("history", only_output=True).splitlines()
        return ([line for line in lines if f"Sidecar {namespace}/default" in line] or [""])[-1]

    until(lambda: f"Sidecar {namespace}/default added" in last())
    mesh.kubectl("delete", f"--namespace={namespace}", "sidecars.networking.istio.io", "default")
    until(lambda: f"Sidecar {namespace}/default removed" in last())


def test_analyze_finds_what_does_not_fit_and_nothing_in_weft_itself(mesh, namespace):
    said = mesh.weft("analyze", "-A", check=False, only_output=True)
    assert f"AuthorizationPolicy {namespace}/nobody: spec.selector: warning [WFT0511]" in said
    assert [line for line in said.splitlines() if f"{NAMESPACE}/weft" in line] == []


def test_version_shows_those_of_the_mesh_and_counts_its_proxies(mesh, namespace):
    found = json.loads(mesh.weft("version", "-o", "json", only_output=True))
    assert {each["Info"]["version"] for each in found["meshVersion"]} == {__version__}
    proxies = {each["ID"] for each in found["dataPlaneVersion"]}
    assert {f"{web(mesh, namespace)['metadata']['name']}.{namespace}", f"orders.{namespace}"} <= proxies
    assert f"bare.{namespace}" not in proxies
