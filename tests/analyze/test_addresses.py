import pytest

from analyze.meshes import WEB, istio, said

HEADLESS = WEB.replace("spec: {selector", "spec: {clusterIP: None, selector", 1)
RULE = istio("DestinationRule", "{host: web, subsets: [{name: v2, labels: {version: v2}}, {name: all}]}")
BALANCED = istio("DestinationRule", "{host: web, trafficPolicy: {loadBalancer: {simple: RANDOM}}}")
OTHER = "---" + WEB.partition("---")[0].replace("name: web,", "name: other,")
EDGE = istio(
    "Gateway",
    "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [web.example]}]}",
    name="edge",
)


def routed(subset, *, kind="http", gateways="[mesh]", match="", hosts="[web]"):
    wanted = f"match: [{match}], " if match else ""
    body = f"{kind}: [{{{wanted}route: [{{destination: {{host: web, subset: {subset}}}}}]}}]"
    return istio("VirtualService", f"{{hosts: {hosts}, gateways: {gateways}, {body}}}")


def told(text):
    return [line for line in said(text) if "address that the application chose" in line]


def test_a_route_to_a_subset_of_a_headless_service_is_reported():
    (line,) = told(HEADLESS + RULE + routed("v2"))
    assert line == (
        "VirtualService shop/x: spec.http[0].route[0].destination.subset: warning: sidecars call "
        "web.shop.svc.cluster.local at the address that the application chose, whether or not it is in subset v2 "
        "(hint: use a Service with a cluster IP: for it, sidecars choose the endpoint)"
    )


@pytest.mark.parametrize(
    "text",
    [
        WEB + RULE + routed("v2"),
        HEADLESS + RULE + routed("all"),
        HEADLESS + RULE + EDGE + routed("v2", gateways="[edge]", hosts="[web.example]"),
        HEADLESS + RULE + EDGE + routed("v2", gateways="[mesh, edge]", match="{gateways: [edge]}"),
        HEADLESS + RULE + OTHER + routed("v2", hosts="[other]"),
    ],
    ids=["a service with an address", "a subset of everybody", "a gateway's routes", "a gateway's route", "another's"],
)
def test_subsets_that_have_an_effect_have_no_findings(text):
    assert told(text) == []


def test_load_balancing_without_effect_is_reported():
    (line,) = told(HEADLESS + BALANCED)
    assert "DestinationRule shop/x: spec: warning: sidecars call web.shop.svc.cluster.local at the address" in line
    assert told(WEB + BALANCED) == []
    assert told(HEADLESS + BALANCED.replace("RANDOM", "PASSTHROUGH")) == []
    assert told(HEADLESS + BALANCED + OTHER + routed("v2", hosts="[other]")) == []


def test_a_gateway_chooses_among_the_pods_of_a_headless_service():
    led = EDGE + routed("v2", gateways="[edge]", hosts="[web.example]")
    assert told(HEADLESS + BALANCED + led) == []
    entry = istio(
        "ServiceEntry",
        "{hosts: [web.example], resolution: NONE, ports: [{number: 80, name: http, protocol: HTTP}]}",
        name="entry",
    )
    (line,) = told(entry + led + BALANCED.replace("host: web,", "host: web.example,"))
    assert "DestinationRule" in line
