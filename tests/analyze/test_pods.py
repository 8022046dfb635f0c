"""Pods that cannot be: the cases of WFT0807 to WFT0809, WFT0812 and WFT0813 have the plain ones."""

from weft.analyze.pods import of_pods
from weft.analyze.templates import template_of
from weft.files.documents import read_documents


def found(text):
    documents = read_documents(text.encode(), "m.yaml").documents
    templates = [template for each in documents if (template := template_of(each))]
    return [(problem.code, problem.where.field) for problem in of_pods(templates, documents)]


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop%s}\nspec: {%s}\n"


def pod(spec, metadata=""):
    return found(POD % (metadata, spec))


def test_a_containers_own_user_overrides_the_pods():
    one = "containers: [{name: a, image: a%s}]"
    assert pod("securityContext: {runAsUser: 1337}, " + one % "") == [("WFT0807", "spec.securityContext.runAsUser")]
    assert pod("securityContext: {runAsUser: 1337}, " + one % ", securityContext: {runAsUser: 5}") == []


def test_a_pod_without_a_proxy_may_use_the_proxys_user_and_ports():
    both = "securityContext: {runAsUser: 1337}, containers: [{name: a, image: a, ports: [{containerPort: 15001}]}]"
    assert len(pod(both)) == 2
    assert pod(both, ", labels: {sidecar.istio.io/inject: 'false'}") == []


def test_the_proxy_container_is_not_checked():
    proxy = "{name: istio-proxy, image: p, securityContext: {runAsUser: 1337}, ports: [{containerPort: 15090}]}"
    assert pod(f"containers: [{{name: a, image: a}}, {proxy}]") == []


def test_on_the_nodes_network_the_proxys_ports_are_free():
    ports = "containers: [{name: a, image: a, ports: [{containerPort: 15001}]}]"
    assert pod(ports) == [("WFT0813", "spec.containers[0].ports[0].containerPort")]
    assert pod(f"hostNetwork: true, {ports}") == []


def test_an_inject_annotation_beside_the_label_is_not_reported():
    both = ", labels: {sidecar.istio.io/inject: 'true'}, annotations: {sidecar.istio.io/inject: 'true'}"
    assert pod("containers: []", both) == []


def test_a_pod_annotation_on_a_service_is_reported():
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: w, namespace: s, annotations: {sidecar.istio.io/inject: 'false'}}\n"
    assert found(service) == [("WFT0809", "metadata.annotations.sidecar.istio.io/inject")]
