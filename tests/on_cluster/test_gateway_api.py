"""The Gateway API on a real cluster, with its own definitions: Gateways served by existing pods or by a Deployment
that weft creates, and routes of a Service between two versions. The outcome of each object is in its status."""

import collections
import json
import urllib.error
import urllib.request

import pytest
from tools.kube.cluster import INSIDE

from fields import proves
from on_cluster import apps
from on_cluster.apps import SERVE, caller_of, fetch, fetched, get, of_kind, python
from on_cluster.mesh import until
from tools.kube import gateway_api

GROUP = "gateway.networking.k8s.io"
CLASS = f"{GROUP}/gateway-class-name"
NAME = f"{GROUP}/gateway-name"
HOST = "shop.example.com"
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


def version(namespace, word):
    """One of two versions of a service, with its own Service, too."""
    ready = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}
    serve = python("app", SERVE, "8080", readinessProbe=ready, env=[{"name": "VERSION", "value": word}])
    wanted = apps.template(f"web-{word}", apps.spec(serve))
    wanted["template"]["metadata"]["labels"]["of"] = "web"
    return [
        of_kind("apps/v1", "Deployment", namespace, f"web-{word}", {"replicas": 1, **wanted}),
        apps.service(namespace, f"web-{word}", ("http", 80, 8080)),
    ]


def route(namespace, name, parent, *rules, **more):
    return of_kind(f"{GROUP}/v1", "HTTPRoute", namespace, name, {"parentRefs": [parent], "rules": list(rules), **more})


def gateway_pods(namespace, name):
    """A manual deployment, as for Istio."""
    labels = {"app": name, NAME: name, "sidecar.istio.io/inject": "true"}
    metadata = {"labels": labels, "annotations": {"inject.istio.io/templates": "gateway"}}
    pods = {"metadata": metadata, "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}}
    selector = {"matchLabels": {"app": name}}
    service = apps.service(namespace, name, ("http", 80, 80), type="NodePort")
    service["spec"]["selector"] = {NAME: name}
    return [
        of_kind("apps/v1", "Deployment", namespace, name, {"replicas": 1, "selector": selector, "template": pods}),
        service,
    ]


def standard_gateway(namespace, name, **more):
    wanted = {"gatewayClassName": "weft", "listeners": [HTTP], **more}
    return of_kind(f"{GROUP}/v1", "Gateway", namespace, name, wanted)


def told(conditions):
    return {each["type"]: each["status"] for each in conditions}


class Place:
    def __init__(self, mesh, namespace):
        self.mesh, self.cluster, self.namespace = mesh, mesh.cluster, namespace

    def from_outside(self, service, path="/"):
        """The response through a port of the node; None unless the status is 200."""
        (port,) = get(self.cluster, "service", self.namespace, service)["spec"]["ports"]
        asked = urllib.request.Request(f"http://{INSIDE}:{port['nodePort']}{path}", headers={"Host": HOST})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(asked, timeout=10) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return None

    def status(self, kind, name):
        return get(self.cluster, f"{kind}.{GROUP}", self.namespace, name).get("status", {})

    def parent(self, name):
        """The status of a route's only parent, once there is one."""
        (found,) = until(lambda: self.status("httproutes", name).get("parents"))
        return found


@pytest.fixture(scope="module")
def place(mesh):
    definitions = gateway_api.definitions()
    mesh.cluster.apply(*definitions)
    mesh.install("--set", "gateways.deployments=true")
    namespace = mesh.namespace("standard")
    both = apps.service(namespace, "web", ("http", 80, 8080))
    both["spec"]["selector"] = {"of": "web"}
    caller = apps.pod(namespace, "caller", python("app", "import time; time.sleep(1e6)"))
    mesh.apply(*version(namespace, "v1"), *version(namespace, "v2"), both, caller)
    mesh.rolled_out(namespace)
    mesh.wait(namespace, "pod/caller")
    yield Place(mesh, namespace)
    mesh.kubectl("delete", "namespace", namespace, "--wait=false")
    mesh.kubectl("delete", "customresourcedefinitions", *(each["metadata"]["name"] for each in definitions))
    mesh.install()


def test_a_gateway_of_the_standard_is_served_by_pods_with_its_name(place, mesh):
    to_web = {"backendRefs": [{"name": "web-v1", "port": 80}]}
    mesh.apply(
        standard_gateway(
            place.namespace, "edge", addresses=[{"type": "Hostname", "value": f"edge.{place.namespace}.svc"}]
        ),
        *gateway_pods(place.namespace, "edge"),
        route(place.namespace, "outside", {"name": "edge"}, to_web, hostnames=[HOST]),
    )
    mesh.rolled_out(place.namespace, "deployment/edge")
    said = until(lambda: place.from_outside("edge"))
    assert said["version"] == "v1"
    assert caller_of(said) == f"spiffe://cluster.local/ns/{place.namespace}/sa/default"


@proves("Gateway.gateway.networking.k8s.io", "spec.addresses[].type", "spec.addresses[].value")
def test_the_status_of_a_gateway_with_an_address_is_programmed_and_shows_the_address(place):
    def programmed():
        found = place.status("gateways", "edge")
        assert told(found.get("conditions", ()))["Programmed"] == "True"
        return found

    found = until(programmed)
    assert told(found["conditions"])["Accepted"] == "True"
    (listener,) = found["listeners"]
    assert (listener["name"], listener["attachedRoutes"]) == ("http", 1)
    assert told(listener["conditions"]) == {
        "Accepted": "True", "Programmed": "True", "ResolvedRefs": "True", "Conflicted": "False",
    }  # fmt: skip
    assert found["addresses"] == [{"type": "Hostname", "value": f"edge.{place.namespace}.svc"}]
    assert not get(place.cluster, "deployments", place.namespace, selector=f"{CLASS}=weft")  # it has pods already
    parent = place.parent("outside")
    assert parent["controllerName"] == "weft.dev/gateway-controller"
    assert told(parent["conditions"]) == {"Accepted": "True", "ResolvedRefs": "True"}


def test_a_route_of_a_service_splits_its_calls_between_two_versions(place, mesh):
    shares = [{"name": "web-v1", "port": 80, "weight": 3}, {"name": "web-v2", "port": 80, "weight": 1}]
    only_new = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "web-v2", "port": 80}]}
    parent = {"group": "", "kind": "Service", "name": "web"}
    mesh.apply(route(place.namespace, "split", parent, only_new, {"backendRefs": shares}))
    assert told(place.parent("split")["conditions"]) == {"Accepted": "True", "ResolvedRefs": "True"}

    def calls(path, number):
        urls = [f"http://web{path}"] * number
        return collections.Counter(
            said["version"] if status == 200 else status
            for status, said in fetch(place.cluster, place.namespace, "caller", *urls)
        )

    fetched(place.cluster, place.namespace, "caller", "http://web/")
    until(lambda: calls("/new", 20) == {"v2": 20})
    found = calls("/", 200)
    assert set(found) == {"v1", "v2"}
    assert 100 < found["v1"] < 195  # 3 to 1, random


def test_a_missing_backend_is_reported_in_the_status(place, mesh):
    parent = {"group": "", "kind": "Service", "name": "web-v2"}
    mesh.apply(route(place.namespace, "nowhere", parent, {"backendRefs": [{"name": "nobody", "port": 80}]}))
    conditions = {each["type"]: each for each in place.parent("nowhere")["conditions"]}
    assert (conditions["ResolvedRefs"]["status"], conditions["ResolvedRefs"]["reason"]) == ("False", "BackendNotFound")
    mesh.kubectl("delete", f"--namespace={place.namespace}", f"httproutes.{GROUP}", "nowhere")


@proves("Gateway.gateway.networking.k8s.io", "spec.infrastructure.labels", "spec.infrastructure.annotations")
def test_a_gateway_without_an_address_gets_a_deployment_with_its_labels_and_annotations(place, mesh):
    carried = {"labels": {"team": "shop"}, "annotations": {"example.com/what": "a b"}}
    mesh.apply(
        standard_gateway(place.namespace, "made", infrastructure=carried),
        route(place.namespace, "made", {"name": "made"}, {"backendRefs": [{"name": "web-v2", "port": 80}]}),
    )
    until(lambda: get(place.cluster, "deployments", place.namespace, selector=f"{NAME}=made"))
    mesh.rolled_out(place.namespace, "deployment/made-weft")
    said = until(lambda: place.from_outside("made-weft"))
    assert said["version"] == "v2"
    assert caller_of(said) == f"spiffe://cluster.local/ns/{place.namespace}/sa/made-weft"
    until(lambda: told(place.status("gateways", "made").get("conditions", ())).get("Programmed") == "True")
    for kind in ("deployments", "pods", "services", "serviceaccounts"):
        found = [each["metadata"] for each in get(place.cluster, kind, place.namespace, selector=f"{NAME}=made")]
        assert found, kind
        for each in found:
            assert (each["labels"]["team"], each["annotations"]["example.com/what"]) == ("shop", "a b"), kind
    address = get(place.cluster, "service", place.namespace, "made-weft")["spec"]["clusterIP"]
    assert until(lambda: place.status("gateways", "made").get("addresses")) == [
        {"type": "IPAddress", "value": address},
    ]


def test_manual_changes_to_the_gateways_deployment_stay_and_ports_follow_the_gateway(place, mesh):
    mesh.kubectl("scale", f"--namespace={place.namespace}", "deployment/made-weft", "--replicas=2")
    changed = standard_gateway(
        place.namespace, "made", listeners=[HTTP, {"name": "more", "port": 8080, "protocol": "HTTP"}]
    )
    changed["metadata"]["annotations"] = {"networking.istio.io/service-type": "ClusterIP"}
    mesh.apply(changed)

    def service():
        found = get(place.cluster, "service", place.namespace, "made-weft")["spec"]
        return found["type"], [each["port"] for each in found["ports"]]

    until(lambda: service() == ("ClusterIP", [80, 8080]))
    assert get(place.cluster, "deployment", place.namespace, "made-weft")["spec"]["replicas"] == 2
    said = fetched(place.cluster, place.namespace, "caller", "http://made-weft:8080/")
    assert said["version"] == "v2"


def test_what_was_made_for_a_gateway_goes_with_it(place, mesh):
    mesh.kubectl("delete", f"--namespace={place.namespace}", f"gateways.{GROUP}", "made")
    for kind in ("deployments", "services", "serviceaccounts"):
        until(lambda kind=kind: not get(place.cluster, kind, place.namespace, selector=f"{NAME}=made"))
