"""Mutual TLS in a running mesh: by default, with PeerAuthentication, and towards servers outside of it."""

from __future__ import annotations

import sys

import pytest

from authority import Authority
from e2e.objects import destination_rule, http_service, istio, service, text, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

BARE = {"sidecar.istio.io/inject": "false"}
CLIENT = "spiffe://cluster.local/ns/shop/sa/client"
# An HTTP server that accepts only TLS, with the certificate from its environment.
SECURE = """
import http.server, os, ssl
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"secure")
server = http.server.ThreadingHTTPServer(("", 8443), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.environ["PAIR"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def peer_authentication(mode, name="default", **spec):
    made = istio("PeerAuthentication", name, {"mtls": {"mode": mode}, **spec})
    return text(made | {"apiVersion": "security.istio.io/v1"})


def files(control):
    secure = Authority().issue("secure.shop.svc.cluster.local")
    (control / "pair.pem").write_bytes(secure.key + secure.certificate)
    (control / "ca.pem").write_bytes(secure.root)
    (control / "other.pem").write_bytes(Authority().issue("x").root)
    for file in ("pair.pem", "ca.pem", "other.pem"):
        (control / file).chmod(0o644)
    return {
        "client.yaml": text(workload("client", control=control, serviceAccount="client")),
        "stranger.yaml": text(workload("stranger", control=control, labels=BARE)),
        "server.yaml": text(
            workload("server", control=control, serve="http=8080 echo=9000 http=8081", serviceAccount="server"),
            http_service("server"),
            service(
                "raw", {"name": "tcp", "port": 9000}, {"name": "unknown", "port": 8081}, selector={"app": "server"}
            ),
        ),
        "direct.yaml": text(
            service("direct", {"name": "http", "port": 8080}, clusterIP="None", selector={"app": "server"})
        ),
        "bare.yaml": text(workload("bare", control=control, serve="http=8080", labels=BARE), http_service("bare")),
        "secure.yaml": text(
            workload(
                "secure",
                control=control,
                labels=BARE,
                command=[sys.executable, "-c", SECURE],
                environment={"PAIR": str(control / "pair.pem")},
                ports=[{"name": "tls", "port": 8443}],
                readiness={"tcp": {"port": 8443}, "period": "100ms"},
            ),
            service("secure", {"name": "http", "port": 80, "targetPort": 8443}),
        ),
    }


def caller(answer):
    """The caller's identity that the server received."""
    assert answer["status"] == 200, answer
    return dict(answer["body"]["headers"]).get("x-forwarded-client-cert", "")


async def certified(mesh):
    """Waits until previous connections are drained."""
    return f"URI={CLIENT}" in caller(await mesh.get("client", "http://server/"))


async def _by_strangers(mesh):
    return (await mesh.get("stranger", f"http://{mesh.pod('server').addresses[0]}:8080/"))["status"]


async def test_two_proxies_use_mutual_tls_by_default(mesh):
    assert f"URI={CLIENT}" in caller(await mesh.get("client", "http://server/"))
    assert f"URI={CLIENT}" in caller(await mesh.get("client", "http://raw:8081/"))
    assert await mesh.stat("client", r"outbound.80..server.*ssl\.handshake") > 0


async def test_a_headless_service_is_called_over_tls_while_all_its_pods_accept_it(mesh):
    assert f"URI={CLIENT}" in caller(await mesh.get("client", "http://direct:8080/"))
    one = peer_authentication("PERMISSIVE", "server", selector={"matchLabels": {"app": "server"}})
    await mesh.edit({"peer.yaml": one.replace("PERMISSIVE", "DISABLE")})

    async def in_plaintext():
        answer = await mesh.get("client", "http://direct:8080/")
        return answer["status"] == 200 and not caller(answer)

    await eventually(in_plaintext)
    await mesh.edit({"peer.yaml": None})
    await eventually(lambda: certified(mesh))


async def test_those_without_a_proxy_call_and_are_called_in_plaintext(mesh):
    assert caller(await mesh.get("client", "http://bare/")) == ""
    assert caller(await mesh.get("stranger", "http://server/")) == ""


async def test_strict_admits_only_callers_with_a_certificate_and_every_probe(mesh):
    await mesh.edit({"peer.yaml": peer_authentication("STRICT")})
    assert await certified(mesh)
    await eventually(lambda: _refused(mesh))
    pod = mesh.pod("server")
    await mesh.ready()
    assert mesh.pod("server").name == pod.name
    await mesh.edit({"peer.yaml": None})
    assert await eventually(lambda: _by_strangers(mesh)) == 200


async def _refused(mesh):
    return await _by_strangers(mesh) == 0


async def test_a_disabled_port_is_called_in_plaintext_and_the_others_are_not(mesh):
    one = peer_authentication(
        "STRICT", "server", selector={"matchLabels": {"app": "server"}}, portLevelMtls={8080: {"mode": "DISABLE"}}
    )
    await mesh.edit({"peer.yaml": one})

    async def in_plaintext():  # previous connections are drained first
        answer = await mesh.get("client", "http://server/")
        return answer["status"] == 200 and not caller(answer)

    await eventually(in_plaintext)
    assert f"URI={CLIENT}" in caller(await mesh.get("client", "http://raw:8081/"))
    await mesh.edit({"peer.yaml": None})


async def test_no_request_fails_while_modes_change(mesh):
    await mesh.tell("client", "load_start", name="modes", url="http://server/")
    for mode in ("STRICT", "PERMISSIVE", "STRICT"):
        await mesh.edit({"peer.yaml": peer_authentication(mode)})
    await mesh.edit({"peer.yaml": None})
    seen = await mesh.tell("client", "load_stop", name="modes")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]


async def test_no_request_fails_while_the_workload_gets_another_account(mesh):
    """Callers must have the new identity before they connect to it, and the old one as long as it is in use."""
    before = (mesh.directory / "server.yaml").read_text()
    await mesh.tell("client", "load_start", name="accounts", url="http://server/")
    old = mesh.pod("server").name
    mesh.write("server.yaml", before.replace("serviceAccount: server", "serviceAccount: renamed"))
    await eventually(lambda: _by_only(mesh, "renamed"))
    seen = await mesh.tell("client", "load_stop", name="accounts")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
    assert len(seen["pods"]) == 2 and old in seen["pods"]
    await mesh.ready()


async def _by_only(mesh, account):
    answers = await mesh.requests("client", "http://server/", 20, keep_alive=False)
    return all(f"By=spiffe://cluster.local/ns/shop/sa/{account};" in caller(each) for each in answers)


async def test_a_rejected_policy_denies_callers_without_a_certificate(mesh):
    bad = peer_authentication("STRIC")
    mesh.write("peer.yaml", bad)
    await eventually(lambda: _refused(mesh))
    assert any("`mode` cannot be `STRIC`" in problem for problem in mesh.problems())
    await eventually(lambda: certified(mesh))
    mesh.write("peer.yaml", None)
    assert await eventually(lambda: _by_strangers(mesh)) == 200


@proves(
    "DestinationRule",
    "spec.trafficPolicy.tls.mode",
)
async def test_a_destination_rule_that_contradicts_peer_authentication_fails_and_is_reported(mesh):
    rule = text(destination_rule("server", tls={"mode": "DISABLE"}))
    await mesh.edit({"peer.yaml": peer_authentication("STRICT"), "rule.yaml": rule})
    assert (await mesh.get("client", "http://server/"))["status"] == 503
    await eventually(lambda: any("server accepts only mutual TLS there" in each for each in mesh.problems()))
    await mesh.edit({"peer.yaml": None, "rule.yaml": None})


async def test_the_proxy_originates_tls_for_a_plaintext_application(mesh):
    """The CA file reaches Envoy by its path, over the aggregated stream."""
    name = "secure.shop.svc.cluster.local"
    for file, status in (("ca.pem", 200), ("other.pem", 503)):
        tls = {"mode": "SIMPLE", "sni": name, "caCertificates": str(mesh.sockets / file)}
        await mesh.edit({"tls.yaml": text(destination_rule("secure", tls=tls))})
        assert (await mesh.get("client", "http://secure/"))["status"] == status, file
    await mesh.edit({"tls.yaml": None})


async def test_a_missing_ca_file_trusts_no_server_and_is_reported(mesh):
    tls = {"mode": "SIMPLE", "caCertificates": "/nowhere/ca.pem"}
    mesh.write("tls.yaml", text(destination_rule("secure", tls=tls)))
    await eventually(lambda: any("/nowhere/ca.pem" in each for each in mesh.problems()))
    (problem,) = [each for each in mesh.problems() if "/nowhere/ca.pem" in each and "DestinationRule" in each]
    assert "Envoy rejects Secret" in problem
    assert (await mesh.get("client", "http://secure/"))["status"] == 503
    assert f"URI={CLIENT}" in caller(await mesh.get("client", "http://server/"))
    await mesh.edit({"tls.yaml": None})


async def test_no_private_key_is_in_the_admin_output_of_a_proxy(mesh):
    answer = await mesh.tell("client", "http", url="http://127.0.0.1:15000/config_dump?include_eds")
    assert answer[0]["status"] == 200
    shown = str(answer[0]["body"])
    assert "ROOTCA" in shown and "PRIVATE KEY" not in shown
