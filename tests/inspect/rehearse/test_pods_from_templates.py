from weft.files.documents import read_documents
from weft.inject.settings import InjectionSettings
from weft.inspect.rehearse.pods_from_templates import AssumedInjection, written_pods

WRITTEN = """\
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: payments, namespace: shop}
spec:
  selector: {matchLabels: {app: payments}}
  template:
    metadata:
      labels: {app: payments}
      annotations: {traffic.sidecar.istio.io/excludeInboundPorts: "9090, 9091"}
    spec: {serviceAccountName: till, containers: [{name: app, image: app, ports: [{name: web, containerPort: 8080}]}]}
"""
OWNED = """\
apiVersion: v1
kind: Pod
metadata:
  name: payments-1
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: payments, uid: x, controller: true}]
spec: {containers: [{name: app, image: app}]}
"""


def read(text):
    return read_documents(text.encode(), "mesh.yaml").documents


def test_a_deployment_has_a_pod_as_kubernetes_would_make_it():
    ((key, pod),) = written_pods(read(WRITTEN))
    assert str(key) == "Pod shop/Deployment/payments"
    assert (pod.workload, pod.labels, pod.service_account) == ("payments", (("app", "payments"),), "till")
    assert (pod.ports, pod.excluded_ports, pod.meshed) == ((("web", 8080),), (9090, 9091), True)


def test_the_namespace_decides_injection():
    for labels, meshed in (("istio-injection: disabled", False), ("istio.io/rev: canary", True), ("", False)):
        ((_, pod),) = written_pods(read(WRITTEN.replace("istio-injection: enabled", labels)))
        assert pod.meshed is meshed, labels


def test_a_template_with_an_owner_gets_no_pod():
    assert len(list(written_pods(read(f"{WRITTEN}---\n{OWNED}")))) == 1


def test_injection_uses_the_settings_of_the_revision():
    canary = InjectionSettings(revision="canary", mesh_id="other")
    injection = AssumedInjection(read(WRITTEN), {"canary": canary})
    assert injection.settings({"istio.io/rev": "canary"}) is canary
    assert injection.settings_for("shop").revision == "default"


GATEWAY = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: edge, namespace: edge}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  template:
    metadata:
      labels: {istio: ingressgateway, sidecar.istio.io/inject: "true"}
      annotations: {inject.istio.io/templates: gateway}
    spec: {containers: [{name: istio-proxy, image: auto}]}
"""


def test_a_template_for_a_gateway_becomes_a_gateway_and_not_a_sidecar():
    def kinds(text):
        ((_, pod),) = written_pods(read(text))
        return pod.gateway, pod.meshed

    assert kinds(GATEWAY) == (True, False)
    assert kinds(GATEWAY.replace("templates: gateway", "templates: sidecar")) == (False, True)
    assert kinds(GATEWAY.replace('"true"', '"false"')) == (False, False)  # the image `auto` is never replaced
    assert kinds(GATEWAY.replace('"true"', '"false"').replace("auto", "weft:1")) == (True, False)  # injected already
    assert kinds(GATEWAY.replace("templates: gateway", "templates: unknown")) == (False, False)  # rejected
