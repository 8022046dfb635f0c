"""From Gateways and pods to the Secrets that are watched, with a real API server."""

import asyncio
import base64

import msgspec
import pytest

from authority import Authority
from cluster.kubernetes import unique
from control.proxy import changes
from eventually import eventually
from kube.following import QUICK
from kube.manifests import pod
from weft.cluster.gateway_credentials import GatewayCredentials, named
from weft.control.plane import ControlPlane
from weft.kube.objects import PodObject
from weft.kube.pods import PodIndex, record_of
from weft.kube.resource import SECRETS
from weft.model.gateway_api import GATEWAY_NAME, AuthorityBundle
from weft.model.group import Group, ProxyKind
from weft.model.names import CredentialRef, ObjectKey, labels_of

FOR_EDGE = {GATEWAY_NAME: "edge"}

GATEWAY = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec:
  selector: {istio: ingress}
  servers:
    - port: {number: 443, name: https, protocol: HTTPS}
      hosts: ["shop.example.com"]
      tls: {mode: SIMPLE, credentialName: shop-cert}
"""


@pytest.fixture
def namespace(api_server):
    return api_server.make_namespace(unique("gateway-credentials"))


def edge(namespace):
    manifest = pod("edge-0", namespace, "10.0.0.1", labels={"istio": "ingress"}, gateway=True)
    manifest["metadata"]["uid"] = "u1"
    return record_of(msgspec.convert(manifest, PodObject))


async def test_secrets_are_those_of_the_gateways_namespace_and_no_others():
    plane = ControlPlane()
    plane.apply(changes(GATEWAY))
    ingress = Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "ingress"}))
    assert ("edge", "shop-cert") in named(plane.mesh, [ingress])
    assert {namespace for namespace, _ in named(plane.mesh, [ingress])} == {"edge"}
    assert named(plane.mesh, [Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "other"}))]) == ()


STANDARD = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  gatewayClassName: weft
  allowedListeners: {namespaces: {from: All}}
  tls: {backend: {clientCertificateRef: {name: client}}}
  listeners: [{name: https, port: 443, protocol: HTTPS, hostname: a.com, tls: {certificateRefs: [{name: z-own}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: far, creationTimestamp: "2026-02-02T00:00:00Z"}
spec:
  parentRef: {name: edge, namespace: shop}
  listeners: [{name: https, port: 443, protocol: HTTPS, hostname: b.com, tls: {certificateRefs: [{name: a-more}]}}]
"""


async def test_secrets_are_those_for_backends_and_of_listener_sets_too_which_come_after_older_ones():
    plane = ControlPlane()
    plane.apply(changes(STANDARD))
    group = Group(ProxyKind.GATEWAY, "shop", labels_of(FOR_EDGE))
    assert named(plane.mesh, [group]) == (("shop", "client"), ("shop", "z-own"), ("far", "a-more"))
    ungranted = STANDARD.replace("{name: client}", "{name: client, namespace: far}")
    plane.apply(changes(ungranted))
    assert named(plane.mesh, [group]) == (("shop", "z-own"), ("far", "a-more"))


def server(port, credential, protocol="HTTPS"):
    tls = f", tls: {{mode: SIMPLE, credentialName: {credential}}}" if protocol == "HTTPS" else ""
    return f"{{port: {{number: {port}, name: p{port}, protocol: {protocol}}}, hosts: ['*']{tls}}}"


def gateway(name, created, *servers):
    return f"""---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: shop, creationTimestamp: "{created}"}}
spec: {{selector: {{istio: ingress}}, servers: [{", ".join(servers)}]}}
"""


async def test_secrets_of_served_servers_come_first_and_the_oldest_of_them_before_others():
    plane = ControlPlane()
    old = gateway("z", "2026-01-01T00:00:00Z", server(443, "zz"), server(444, "z"), server(446, "", "HTTP"))
    new = gateway("a", "2026-02-02T00:00:00Z", server(443, "taken"), server(445, "a"), server(446, "wrong"))
    plane.apply(changes((new + old).removeprefix("---\n")))
    groups = [Group(ProxyKind.GATEWAY, name, labels_of({"istio": "ingress"})) for name in ("one", "two")]
    found = named(plane.mesh, groups)
    assert [name for place, name in found if place == "one"] == ["zz", "z", "a", "taken", "wrong"]
    assert [name for _, name in found[:4]] == ["zz", "zz", "z", "z"]


EGRESS = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: out, namespace: edge}
spec:
  selector: {istio: egress}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [api.example.com]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: api, namespace: edge}
spec:
  hosts: [api.example.com]
  gateways: [edge/out]
  http: [{route: [{destination: {host: api.example.com}}]}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: edge}
spec: {hosts: [api.example.com], ports: [{number: 443, name: http, protocol: HTTP}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: HOST, namespace: edge}
spec:
  host: HOST
  trafficPolicy: {tls: {mode: MUTUAL, credentialName: partner}}
"""


@pytest.mark.parametrize(("host", "found"), [("api.example.com", {"partner", "partner-cacert"}), ("b.com", set())])
async def test_secrets_of_rules_are_those_for_hosts_that_a_gateways_routes_lead_to(host, found):
    plane = ControlPlane()
    plane.apply(changes(EGRESS.replace("HOST", host)))
    egress = Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "egress"}))
    assert set(named(plane.mesh, [egress])) == {("edge", name) for name in found}


async def test_the_secret_of_a_rule_added_later_is_read(client, namespace):
    certificate = Authority().issue("client.example.com")
    held = {"tls.crt": certificate.certificate, "tls.key": certificate.key}
    data = {name: base64.b64encode(each).decode() for name, each in held.items()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "partner"}, "data": data}
    await client.create(SECRETS, manifest, namespace=namespace)
    gateway, _, rule = EGRESS.replace("HOST", "api.example.com").replace(": edge", f": {namespace}").rpartition("---")
    gateway = gateway.replace("istio: egress", "istio: ingress").replace("edge/out", f"{namespace}/out")
    plane, pods = ControlPlane(), PodIndex()
    running = asyncio.create_task(GatewayCredentials(client, plane, pods, QUICK).run())
    try:
        plane.apply(changes(gateway))
        pods.put(edge(namespace))
        plane.apply(changes(rule))
        await eventually(lambda: plane.mesh.credential(CredentialRef("partner", namespace)) is not None)
    finally:
        running.cancel()
        await asyncio.wait([running])


CHECKED = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: SHOP}
spec:
  gatewayClassName: weft
  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: "yes"}}}}
  listeners:
    - {name: own, port: 443, protocol: HTTPS, hostname: a.com, tls: {certificateRefs: [{name: own, namespace: FAR}]}}
    - {name: checked, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: checked}]}}
    - {name: first, port: 445, protocol: HTTPS, tls: {certificateRefs: [{name: first}]}}
  tls:
    frontend:
      default: {}
      perPort:
        - port: 444
          tls: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: callers}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: FAR}
spec:
  parentRef: {name: edge, namespace: SHOP}
  listeners: [{name: https, port: 443, protocol: HTTPS, hostname: b.com, tls: {certificateRefs: [{name: more}]}}]
"""
ALLOWING = {
    "own": """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: shop, namespace: FAR}
spec:
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: SHOP}]
  to: [{group: "", kind: Secret}]
""",
    "more": """
apiVersion: v1
kind: Namespace
metadata: {name: FAR, labels: {team: "yes"}}
""",
}


async def test_the_secret_of_a_listener_that_is_allowed_later_is_read(client, namespace, api_server):
    far = api_server.make_namespace(unique("gateway-credentials-far"))
    certificate = Authority().issue("a.com")
    held = {"tls.crt": certificate.certificate, "tls.key": certificate.key}
    data = {name: base64.b64encode(each).decode() for name, each in held.items()}
    places = {"own": far, "more": far, "checked": namespace, "first": namespace}
    for name, place in places.items():
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await client.create(SECRETS, manifest, namespace=place)
    plane, pods = ControlPlane(), PodIndex()
    secrets = GatewayCredentials(client, plane, pods, QUICK)

    def held_now():
        return {name for name, place in places.items() if plane.mesh.credential(CredentialRef(name, place)) is not None}

    def apply(text):
        plane.apply(changes(text.replace("SHOP", namespace).replace("FAR", far)))

    running = asyncio.create_task(secrets.run())
    try:
        apply(CHECKED)
        manifest = pod("edge-0", namespace, "10.0.0.1", labels=FOR_EDGE, gateway=True)
        manifest["metadata"]["uid"] = "u1"
        pods.put(record_of(msgspec.convert(manifest, PodObject)))
        await eventually(lambda: held_now() == {"first"})
        for name, text in ALLOWING.items():
            apply(text)
            await eventually(lambda name=name: name in held_now())
        assert held_now() == {"first", "own", "more"}
        callers = AuthorityBundle("callers", namespace, certificate.root.decode())
        plane.apply((), None, [(ObjectKey("ConfigMap", namespace, "callers"), (callers,))])
        await eventually(lambda: held_now() == places.keys())
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_secret_is_read_as_long_as_a_pod_serves_a_gateway_that_names_it(client, namespace):
    certificate = Authority().issue("shop.example.com")
    held = {"tls.crt": certificate.certificate, "tls.key": certificate.key}
    data = {
        name: base64.b64encode(each if isinstance(each, bytes) else each.encode()).decode()
        for name, each in held.items()
    }
    for name in ("shop-cert", "another"):
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await client.create(SECRETS, manifest, namespace=namespace)
    plane, pods = ControlPlane(), PodIndex()
    running = asyncio.create_task(GatewayCredentials(client, plane, pods, QUICK).run())
    try:
        plane.apply(changes(GATEWAY))
        pods.put(edge(namespace))
        reference = CredentialRef("shop-cert", namespace)
        await eventually(lambda: plane.mesh.credential(reference) is not None)
        assert plane.mesh.credential(CredentialRef("another", namespace)) is None
        pods.discard(namespace, "edge-0")
        await eventually(lambda: plane.mesh.credential(reference) is None)
    finally:
        running.cancel()
        await asyncio.wait({running})
        await plane.close()
