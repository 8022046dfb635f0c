"""Tests of requests from outside through a gateway, compared with a real gateway."""

import re
from pathlib import Path

import pytest
from tests.inspect.test_closed_servers import EDGE as CLOSED
from tools.ports import free_port

from authority import Authority
from explain.worlds import CALLER
from gateway_rig import application, ask, entry, gateway, pair, trusting, underscores
from golden.render import load
from weft.cli.read.trial_source import staged
from weft.control.problems import Problems
from weft.control.push.push import Push
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.url import request_of
from weft.files.documents import read_documents
from weft.inspect.live import live_stage
from weft.inspect.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of
from weft.xds.snapshot import Snapshots
from weft.xds.types import SECRET

MESH = """
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: edge}
spec:
  selector: {istio: ingress}
  servers:
    - {port: {number: PLAIN, name: http, protocol: HTTP}, hosts: [shop.example.com]}
    - {port: {number: PLAIN, name: safe, protocol: HTTP}, hosts: [safe.example.com], tls: {httpsRedirect: true}}
    - port: {number: SECURE, name: https, protocol: HTTPS}
      hosts: ["*.example.com"]
      tls: {mode: SIMPLE, credentialName: shop}
    - port: {number: SECURE, name: near, protocol: HTTPS}
      hosts: [near.example.com]
      tls: {mode: MUTUAL, credentialName: shop}
    - port: {number: SECURE, name: lost, protocol: HTTPS}
      hosts: [lost.example.com]
      tls: {mode: SIMPLE, credentialName: lost}
    - {port: {number: BYTES, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: shop}
spec:
  hosts: ["*.example.com"]
  gateways: [edge/public]
  http:
    - match: [{uri: {prefix: /moved}}]
      redirect: {uri: /here}
    - match: [{uri: {prefix: /void}}]
      route: [{destination: {host: nobody}}]
    - route: [{destination: {host: web}}]
  tcp: [{route: [{destination: {host: bytes}}]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-admin, namespace: edge}
spec:
  action: DENY
  rules: [{to: [{operation: {paths: [/admin]}}]}]
"""
ASKED = (
    "http://shop.example.com:PLAIN/",
    "http://shop.example.com:PLAIN/moved",
    "http://shop.example.com:PLAIN/void",
    "http://shop.example.com:PLAIN/admin",
    "http://safe.example.com:PLAIN/x",
    "http://other.example.com:PLAIN/",
    "https://shop.example.com:SECURE/",
    "https://shop.example.com:SECURE/admin",
    "https://lost.example.com:SECURE/",
    "https://example.org:SECURE/",
    "http://shop.example.com:SECURE/",
    "http://shop.example.com:BYTES/",
    "http://shop.example.com:UNSERVED/",
)


async def test_a_real_gateway_behaves_as_explained():
    plain, secure, bytes_, unserved = (free_port() for _ in range(4))
    shown = Authority().issue("*.example.com")

    def written(text):
        for word, port in (("PLAIN", plain), ("SECURE", secure), ("BYTES", bytes_), ("UNSERVED", unserved)):
            text = text.replace(word, str(port))
        return text

    async with application("web") as web:
        text = MESH + pair("shop", shown, ca_crt=shown.root) + entry("web", web) + entry("bytes", web, "TCP")
        async with gateway(written(text), listening=(plain, secure, bytes_)) as made:
            pod = Instance("ingress-0", "edge", ("192.0.2.50",), labels_of({"istio": "ingress"}), gateway=True)
            made.plane.put(ObjectKey("Instance", "edge", "ingress-0"), (pod,))
            stage = live_stage(made.plane)
            caller = stage.find("ingress-0")
            for url in map(written, ASKED):
                request = request_of(url, caller=caller)
                verdict = explain(request, stage).verdict
                tls = trusting(shown) if url.startswith("https") else None
                if tls is not None:
                    tls.check_hostname = False
                called = request.host if tls else f"{request.host}:{request.port}"
                found = await ask(request.port, called, request.path, tls=tls)
                if found is None:
                    assert verdict.kind is Kind.CLOSED, (url, verdict)
                elif verdict.kind is Kind.PASSED_ON:
                    assert found.status == 200 and found.seen["app"] == "web", (url, found)
                else:
                    assert (verdict.status, verdict.location) == (found.status, found.headers.get("location", "")), url


def at_the_edge(more=""):
    text = (
        MESH
        + more
        + "---\napiVersion: weft.dev/v1alpha1\nkind: Workload\nmetadata: {name: edge, namespace: edge, labels: {istio: ingress}}\nspec: {gateway: {}}\n"
    )
    for word, port in (("PLAIN", 80), ("SECURE", 443), ("BYTES", 5432)):
        text = text.replace(word, str(port))
    shown = Authority().issue("near.example.com")
    mesh, _ = load(text + pair("shop", shown, ca_crt=shown.root))
    return Stage(mesh)


def told(url, headers=(), more=""):
    stage = at_the_edge(more)
    found = explain(request_of(url, caller=stage.find("edge"), headers=headers), stage)
    return [step.what for step in found.outcomes[0].steps], found.verdict


def test_each_decision_of_a_gateway_is_a_step():
    steps, _ = told("https://near.example.com/")
    assert steps[0] == (
        "the caller is assumed to be at 203.0.113.1, an unassigned address (--source-address sets another)"
    )
    assert steps[1] == (
        "from outside to port 443 for near.example.com: the listener 0.0.0.0_443, the server https.443.near.public.edge "
        "for near.example.com"
    )
    assert steps[2] == (
        "the server terminates TLS with kubernetes://shop, and rejects clients without a trusted certificate"
    )
    steps, _ = told("http://shop.example.com:8080/")
    assert steps[1:] == ["from outside to port 8080: edge-0.edge serves no such port (it serves 80, 443, 5432)"]


def test_a_tcp_connection_names_the_object_of_its_route():
    stage = at_the_edge()
    found = explain(request_of("tcp://any:5432", caller=stage.find("edge")), stage)
    named = [(each.kind, each.name) for each in found.outcomes[0].steps[1].sources]
    assert named == [("Gateway", "public"), ("VirtualService", "shop")]


@pytest.mark.parametrize(
    ("name", "word", "status", "said"),
    [
        ("x_user", "reject", 400, True),
        ("x-user", "reject", 301, False),
        ("x_user", "drop", 301, True),
        ("x_user", "allow", 301, False),
    ],
)
def test_headers_with_underscores_are_rejected_where_configured(name, word, status, said):
    steps, verdict = told("http://safe.example.com/", ((name, "a"),), underscores(word))
    assert verdict.status == status
    assert any("has an underscore" in step for step in steps) is said


PAGE = (Path(__file__).parents[2] / "docs" / "gateways.md").read_text()
EGRESS = re.findall(r"```yaml\n(.*?)```", PAGE.partition("## Out of the mesh")[2].partition("\n## ")[0], re.DOTALL)[0]
NOT_THIS = "{action: DENY, rules: [{to: [{operation: {paths: [/secret]}}]}]}"


def outward(text, path="/x", caller=CALLER, **request):
    stage, problems = staged(read_documents(f"{caller}\n---\n{text}".encode(), "egress.yaml").documents)
    assert not problems
    found = explain(request_of(f"http://partner.example{path}", caller=stage.find("frontend"), **request), stage)
    return [(step.proxy, step.what) for step in found.outcomes[0].steps], found.verdict


def egress_policy(spec):
    return f"""---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: out, namespace: edge}}
spec: {spec}
"""


@pytest.mark.parametrize("spec", ["", "{rules: [{from: [{source: {namespaces: [shop]}}]}]}", "{}", NOT_THIS])
async def test_a_call_through_an_egress_gateway_has_all_steps(spec):
    """The mesh of the docs page. The test sends to a real gateway what the caller's proxy would send."""
    text = EGRESS + pair("partner", shown := Authority().issue("partner.example"), ca_crt=shown.root)
    text += egress_policy(spec) if spec else ""
    steps, verdict = outward(text, "/secret")
    called = next(what for proxy, what in steps if proxy == "egress-0.edge")
    assert called == (
        "from the mesh to port 8443 for partner.example: the listener 0.0.0.0_8443, the server "
        "https.443.https.egress.edge for partner.example"
    )
    port = free_port()
    async with application("partner") as partner:
        kept = ("kind: Gateway\n", "kind: ServiceEntry\n", "kind: VirtualService\n", "kind: AuthorizationPolicy\n")
        wire = "---\n".join(each for each in text.split("---\n") if any(kind in each for kind in kept))
        for written, really in (
            ("{istio: egress}", "{istio: ingress}"),
            ("{number: 443, name: https, protocol: HTTPS}", f"{{number: {port}, name: https, protocol: HTTPS}}"),
            ("192.0.2.80", "127.0.0.1"),
            ("name: https, protocol: HTTP}", f"name: https, protocol: HTTP, targetPort: {partner}}}"),
        ):
            assert written in wire
            wire = wire.replace(written, really)
        async with gateway(wire, listening=(port,)) as made:
            client = made.authority.issue("spiffe://cluster.local/ns/shop/sa/frontend")
            context = trusting(client, shows=client)
            context.check_hostname = False
            found = await ask(port, "partner.example", "/secret", tls=context)
    if found.status == 200:
        assert (verdict.kind, verdict.why) == (Kind.PASSED_ON, "the call continues to 192.0.2.80:443")
    else:
        assert (verdict.kind, verdict.status) == (Kind.DENIED, found.status)
    assert (verdict.cluster, verdict.workload) == ("outbound|443||egress.edge.svc.cluster.local", "egress-0.edge")


def test_a_gateway_server_accepts_only_the_tls_that_it_terminates():
    plain = "---\n".join(each for each in EGRESS.split("---\n") if "name: to-egress" not in each)
    steps, verdict = outward(plain)
    assert (verdict.kind, verdict.status) == (Kind.FAILED, 503)
    assert steps[-1][1].endswith("the listener 0.0.0.0_8443, whose servers expect TLS, but the connection is plaintext")
    other = EGRESS.replace("sni: partner.example}}\n---", "sni: other.example}}\n---")
    assert other != EGRESS
    steps, verdict = outward(other)
    assert (verdict.kind, verdict.status) == (Kind.FAILED, 503)
    assert "for other.example: the listener 0.0.0.0_8443, but none of its servers matches that name" in steps[-1][1]
    http = EGRESS.replace("protocol: HTTPS", "protocol: HTTP").replace("tls: {mode: ISTIO_MUTUAL}", "")
    steps, verdict = outward(http)
    assert (verdict.kind, verdict.status) == (Kind.FAILED, 503)
    assert steps[-1][1] == "the server expects plaintext, but the caller's proxy sends mutual TLS to egress-0.edge"


SEALED = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: egress, namespace: edge, labels: {istio: egress}}
spec: {gateway: {}}
---
apiVersion: v1
kind: Service
metadata: {name: egress, namespace: edge}
spec: {selector: {istio: egress}, ports: [{name: tls, port: 443}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: egress, namespace: edge}
spec:
  selector: {istio: egress}
  servers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: [bank.example], tls: {mode: PASSTHROUGH}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: to-egress, namespace: shop}
spec:
  host: egress.edge.svc.cluster.local
  trafficPolicy: {tls: {mode: ISTIO_MUTUAL, sni: bank.example, subjectAltNames: [WHO]}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: bank, namespace: shop}
spec: {hosts: [bank.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, location: MESH_EXTERNAL, endpoints: [{address: 192.0.2.80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: bank, namespace: shop}
spec:
  hosts: [bank.example]
  gateways: [mesh, edge/egress]
  http: [{match: [{gateways: [mesh]}], route: [{destination: {host: egress.edge.svc.cluster.local, port: {number: 443}}}]}]
  tls: [{match: [{gateways: [edge/egress], sniHosts: [bank.example]}], route: [{destination: {host: bank.vault.svc.cluster.local, port: {number: 443}}}]}]
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: bank, namespace: vault, labels: {app: bank}}
spec: {command: [sleep, "1"], serviceAccount: bank, ports: [{name: web, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: bank, namespace: vault}
spec: {selector: {app: bank}, ports: [{name: NAME, port: 443, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: bank, namespace: edge}
spec: {host: bank.vault.svc.cluster.local, trafficPolicy: {tls: {mode: MODE}}}
"""
BANK = "spiffe://cluster.local/ns/vault/sa/bank"


@pytest.mark.parametrize(
    ("who", "name", "mode", "kind", "last"),
    [
        (BANK, "http", "DISABLE", Kind.DELIVERED, "the call reaches bank-0.vault on port 8080"),
        (BANK, "tcp", "DISABLE", Kind.DELIVERED, "the call reaches bank-0.vault on port 8080"),
        (f"{BANK}x", "http", "DISABLE", Kind.FAILED, f"the server is {BANK}, not {BANK}x"),
        (
            BANK,
            "http",
            "ISTIO_MUTUAL",
            Kind.FAILED,
            "bank-0.vault expects HTTP, but the connection carries something else",
        ),
        (
            *(BANK, "tcp", "ISTIO_MUTUAL", Kind.FAILED),
            "the connection is TLS inside TLS: bank-0.vault terminates the outer TLS, and no proxy the inner TLS",
        ),
        (
            *(BANK, "tcp", "SIMPLE", Kind.FAILED),
            "the connection is already TLS, and the proxy adds TLS: 198.18.0.3:8080 gets TLS inside TLS",
        ),
    ],
)
def test_a_passthrough_server_forwards_the_meshs_tls_unchanged(who, name, mode, kind, last):
    text = SEALED.replace("WHO", who).replace("NAME", name).replace("MODE", mode)
    stage, _ = staged(read_documents(f"{CALLER}\n---\n{text}".encode(), "sealed.yaml").documents)
    found = explain(request_of("http://bank.example/x", caller=stage.find("frontend")), stage)
    steps = [step.what for step in found.outcomes[0].steps]
    assert "the server forwards the TLS of the caller's proxy unchanged" in steps
    assert (found.verdict.kind, steps[-1]) == (kind, last)


def test_mesh_tls_forwarded_to_an_unknown_server_is_unknown():
    text = (
        SEALED.replace("WHO", BANK)
        .replace("MODE", "DISABLE")
        .replace("host: bank.vault.svc.cluster.local, port: {number: 443}", "host: bank.example, port: {number: 80}")
    )
    stage, _ = staged(read_documents(f"{CALLER}\n---\n{text}".encode(), "sealed.yaml").documents)
    found = explain(request_of("http://bank.example/x", caller=stage.find("frontend")), stage)
    assert (found.verdict.kind, "and decides whether" in found.verdict.why) == (Kind.UNKNOWN, True)


def test_a_gateway_that_routes_to_itself_does_not_loop_forever():
    round_ = EGRESS.replace("host: partner.example, port: {number: 443}}}]", "host: egress, port: {number: 443}}}]")
    assert round_ != EGRESS
    _, verdict = outward(round_)
    assert (verdict.kind, verdict.why) == (Kind.UNKNOWN, "the call loops through egress-0.edge")


@pytest.mark.parametrize(
    ("url", "what", "why"),
    [
        (
            "http://shop.example/",
            "from outside to port 80: the server of Gateway edge/aaa there is TCP, and no VirtualService has `tcp` "
            "routes for it; the server of Gateway edge/public for HTTP is left out",
            "the server is closed: no VirtualService has `tcp` routes for it",
        ),
        (
            "https://shop.example:9443/",
            "the server of Gateway edge/public there is HTTPS, and there is no Secret edge/shop",
            "the server is closed: there is no Secret edge/shop",
        ),
    ],
)
def test_a_closed_server_has_a_reason(url, what, why):
    stage, _ = staged(read_documents(CLOSED.replace("NAME", "aaa").encode(), "edge.yaml").documents)
    found = explain(request_of(url, caller=stage.find("edge")), stage)
    assert (found.outcomes[0].steps[-1].what, found.verdict.why) == (what, why)
    assert found.verdict.kind is Kind.CLOSED
    if "9443" in url:
        assert "from outside to port 9443 of the machine, which is 443 at edge-0.edge for" in str(found)


def test_a_certificate_that_the_proxy_rejects_closes_connections():
    files = CLOSED.replace("credentialName: shop", "serverCertificate: /tls.crt, privateKey: /tls.key")
    assert files != CLOSED
    written, _ = staged(read_documents(files.encode(), "edge.yaml").documents)
    mesh, group, served = written.mesh, written.group(written.find("edge")), Snapshots()
    Push(mesh, served, Problems()).join(group)
    ((name, secret),) = served.resources(group, SECRET).items()

    def asked():
        stage = Stage(mesh, served)
        return explain(request_of("https://shop.example:9443/", caller=stage.find("edge")), stage)

    assert asked().verdict.kind is not Kind.CLOSED
    served.reject(group, SECRET, name, secret.version, "unable to read file: /tls.key")
    found = asked()
    assert (found.verdict.kind, found.verdict.why) == (Kind.CLOSED, "the gateway's proxy rejects its certificate")
    assert found.outcomes[0].steps[-1].what == f"edge-0.edge rejects {name}: unable to read file: /tls.key"


GUARDED = (
    MESH
    + """---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: edge, namespace: edge, labels: {istio: ingress}}
spec: {gateway: {}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: not-from-there, namespace: edge}
spec: {action: DENY, rules: [{from: [{source: {remoteIpBlocks: [198.51.100.0/24]}}]}]}
"""
)


def guarded(url, **more):
    text = GUARDED.replace("PLAIN", "80").replace("SECURE", "443").replace("BYTES", "5432")
    stage, _ = staged(read_documents(text.encode(), "edge.yaml").documents)
    found = explain(request_of(url, caller=stage.find("edge"), **more), stage)
    return [step.what for step in found.outcomes[0].steps], found.verdict


def test_the_address_of_an_external_client_can_be_set():
    steps, verdict = guarded("http://shop.example.com/moved")
    assert verdict.status == 301 and "203.0.113.1" in steps[0]
    steps, verdict = guarded("http://shop.example.com/moved", source="198.51.100.7")
    assert (verdict.kind, verdict.status) == (Kind.DENIED, 403)
    assert steps[0] == "the caller is at 198.51.100.7"


def test_an_untrusted_x_forwarded_for_has_a_step():
    steps, verdict = guarded("http://shop.example.com/moved", headers=(("x-forwarded-for", "198.51.100.7"),))
    assert verdict.status == 301
    assert (
        "x-forwarded-for is not trusted, so the client address is 203.0.113.1: numTrustedProxies of the mesh settings is 0"
        in steps
    )


def test_an_unknown_host_lists_the_served_hosts():
    steps, verdict = guarded("http://other.example/")
    assert (verdict.kind, verdict.status) == (Kind.ANSWERED, 404)
    assert verdict.why == "http.80 has no host other.example (it has safe.example.com, shop.example.com)"
    assert verdict.why in steps


def test_built_in_rules_have_no_step_unless_they_deny():
    steps, verdict = told("http://shop.example.com/admin")
    assert verdict.kind is Kind.DENIED
    assert [each for each in steps if "den" in each] == ["no-admin rule[0] denies the call"]


def test_a_rule_whose_secret_is_missing_is_in_the_verdict():
    steps, verdict = outward(EGRESS)
    said = "no endpoint of outbound|443||partner.example can be called: there is no Secret edge/partner"
    assert (verdict.kind, verdict.status, verdict.why) == (Kind.FAILED, 503, said)
    assert steps[-1][0] == "egress-0.edge"
