import pytest

from authority import Authority
from gateway_rig import pair
from weft.cli.read.trial_source import staged
from weft.files.documents import read_documents
from weft.inspect.closed_servers import closed, left_out, unanswered, unsent
from weft.model.destination_rule import DestinationRule

EDGE = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: edge, namespace: edge, labels: {istio: ingress}}
spec: {gateway: {publish: [{port: 80, hostPort: 9080}, {port: 443, hostPort: 9443}]}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: NAME, namespace: edge}
spec:
  selector: {istio: ingress}
  servers: [{port: {number: 80, name: t, protocol: TCP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  selector: {istio: ingress}
  servers:
    - {port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example]}
    - {port: {number: 443, name: https, protocol: HTTPS}, hosts: [shop.example], tls: {mode: SIMPLE, credentialName: shop}}
"""
RULE = """---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: partner, namespace: edge}
spec:
  host: partner.example
  trafficPolicy: {tls: {mode: SIMPLE, credentialName: partner, sni: partner.example}}
"""


def stage_of(name="aaa", *more):
    stage, problems = staged(
        read_documents("".join((EDGE.replace("NAME", name), *more)).encode(), "edge.yaml").documents
    )
    assert not problems
    return stage, stage.group(stage.find("edge"))


@pytest.mark.parametrize(("name", "gateway", "first"), [("aaa", "public", "TCP"), ("zzz", "zzz", "HTTP")])
def test_the_later_of_two_servers_with_different_protocols_on_one_port_is_left_out(name, gateway, first):
    stage, group = stage_of(name)
    (out,) = left_out(stage.mesh, group)
    assert out.gateway.name == gateway
    assert out.why == f"Gateway edge/{'aaa' if name == 'aaa' else 'public'} uses port 80 for {first}"


def test_a_server_without_its_secret_or_routes_is_closed():
    stage, group = stage_of()
    tcp, https = closed(stage.mesh, group)
    assert (tcp.port, tcp.why) == (80, "no VirtualService has `tcp` routes for it")
    assert tcp.what.endswith("; the server of Gateway edge/public for HTTP is left out")
    assert (https.hosts, https.why) == (("shop.example",), "there is no Secret edge/shop")
    stage, group = stage_of("zzz", pair("shop", Authority().issue("shop.example")))
    assert closed(stage.mesh, group) == ()
    assert [unanswered(stage.mesh, each, group) for each in stage.mesh.scope(group).servers] == ["", ""]


def test_a_destination_rule_with_a_missing_secret_makes_calls_fail():
    def why(*more):
        stage, group = stage_of("zzz", RULE, *more)
        rules = [each for _, held in stage.mesh.values() for each in held if isinstance(each, DestinationRule)]
        return unsent(stage.mesh, group, rules[0], 443)

    shown = Authority().issue("partner.example")
    assert why() == "there is no Secret edge/partner"
    assert why(pair("partner", shown)) == "the Secret edge/partner has no `ca.crt`"
    assert why(pair("partner", shown, ca_crt=shown.root)) == ""


def test_a_secret_of_that_name_in_another_namespace_is_mentioned():
    shown = Authority().issue("shop.example")
    there = "".join(pair(name, shown).replace("namespace: edge", "namespace: shop") for name in ("shop", "partner"))
    stage, group = stage_of("zzz", RULE, there)
    (https,) = closed(stage.mesh, group)
    assert https.why == "there is no Secret edge/shop (there is one in shop; it must be in edge)"
    (rule,) = [each for _, held in stage.mesh.values() for each in held if isinstance(each, DestinationRule)]
    said = "there is no Secret edge/partner (there is one in shop; it must be in edge)"
    assert unsent(stage.mesh, group, rule, 443) == said
