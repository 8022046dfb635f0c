"""Tests of the whole analysis: of files, of a cluster, and of files over a cluster. tests/analyze test the checks
themselves."""

from pathlib import Path

from analyze.meshes import WEB, istio
from weft.analyze.proxies import Installed
from weft.files.documents import read_documents
from weft.inject.settings import InjectionSettings
from weft.inspect.rehearse.examination import Running, examine
from weft.model.instance import Instance
from weft.model.names import ObjectKey

EXAMPLES = Path(__file__).parents[3] / "examples"
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web, version: v1}}
    spec: {containers: [{name: app, image: app}]}
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n"
RULE = istio("DestinationRule", "{host: web, subsets: [{name: v2, labels: {version: v2}}]}")


def documents(*texts):
    return read_documents("\n---\n".join(texts).encode(), "m.yaml").documents


def codes(examined):
    return [problem.code for problem in examined.problems]


def pod(name="web-1", workload="web", ready=True, meshed=True, version="v1"):
    labels = (("app", "web"), ("version", version))
    instance = Instance(
        name, "shop", ("192.0.2.7",), labels, ready=ready, meshed=meshed, workload=workload, by_slice=True
    )
    return ObjectKey("Pod", "shop", name), (instance,)


def test_the_example_has_no_findings():
    files = sorted((EXAMPLES / "shop").glob("*.yaml"))
    examined = examine([each for file in files for each in read_documents(file.read_bytes(), file.name).documents])
    assert codes(examined) == []
    assert examined.objects > 20


def test_a_deployment_counts_as_running_and_its_namespace_decides_injection():
    assert codes(examine(documents(SERVICE, DEPLOYMENT))) == []
    mutual = istio("DestinationRule", "{host: web, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}")
    assert codes(examine(documents(NAMESPACE, SERVICE, DEPLOYMENT, mutual))) == []
    off = NAMESPACE.replace("enabled", "disabled")
    assert codes(examine(documents(off, SERVICE, DEPLOYMENT, mutual))) == ["WFT0209"]


def test_kinds_that_weft_does_not_read_are_ignored():
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\n"
    assert codes(examine(documents(secret, DEPLOYMENT))) == []
    unknown = "apiVersion: v1\nkind: Sercet\nmetadata: {name: s, namespace: shop}\n"
    assert codes(examine(documents(unknown))) == ["WFT0001"]


def test_on_a_cluster_running_pods_count_instead_of_templates():
    running = Running((pod(version="v2"),))
    assert codes(examine(documents(NAMESPACE, SERVICE, DEPLOYMENT, RULE), running=running)) == []
    assert codes(examine(documents(NAMESPACE, SERVICE, RULE), running=Running((pod(),)))) == ["WFT0202"]


def test_a_file_replaces_the_clusters_object_and_its_pods():
    there = documents(NAMESPACE, SERVICE, RULE)
    newer = documents(DEPLOYMENT.replace("v1}", "v2}"))
    running = Running((pod(),))
    assert codes(examine(there, running=running)) == ["WFT0202"]
    assert codes(examine(there, running=running, laid_over=newer)) == []
    other = documents(istio("DestinationRule", "{host: web}"))
    assert codes(examine(there, running=running, laid_over=other)) == []


def test_a_running_pod_is_checked_with_the_injectors_settings():
    body = DEPLOYMENT.partition("spec:")[0].replace("Deployment", "Pod").replace("apps/v1", "v1")
    written = documents(NAMESPACE, body + "spec: {containers: [{name: app, image: app}]}\nstatus: {phase: Running}\n")
    assert codes(examine(written, running=Running((pod(meshed=False),)))) == ["WFT0804"]
    never = InjectionSettings(auto_inject=False)
    running = Running((pod(meshed=False),), Installed(), {"default": never})
    assert codes(examine(written, running=running)) == []


def test_an_annotation_suppresses_findings():
    wrong = WEB + istio("DestinationRule", "{host: wbe}")
    assert codes(examine(documents(wrong))) == ["WFT0201"]
    for name in ("weft.dev/analyze-suppress", "galley.istio.io/analyze-suppress"):
        for value in ("WFT0101, WFT0201", "'*'"):
            quiet = wrong.replace(
                "{name: x, namespace: shop}",
                f"{{name: x, namespace: shop, annotations: {{{name}: {value if '*' in value else repr(value)}}}}}",
            )
            assert codes(examine(documents(quiet))) == []
    other = wrong.replace("{name: x,", "{name: x, annotations: {weft.dev/analyze-suppress: WFT0202},")
    assert codes(examine(documents(other))) == ["WFT0201"]


def test_findings_have_the_line_of_their_field():
    text = WEB + istio("DestinationRule", "\n  host: web\n  subsets:\n    - name: v9\n      labels: {version: v9}")
    (problem,) = examine(documents(text)).problems
    assert text.splitlines()[problem.where.line - 1] == "      labels: {version: v9}"
