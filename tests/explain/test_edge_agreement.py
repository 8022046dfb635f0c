"""The property of test_agreement.py at the edge: a real gateway treats generated external requests as `explain`
predicts."""

import asyncio
import json
import re
import time

from hypothesis import strategies as st
from tools.ports import free_port

from explain.asked import Asked, Case, Told
from explain.chance import HEADERS, ISTIO, KINDS, SECURITY, VALUES, document, drawn
from explain.difference import disagreement
from explain.meshes import Maker
from explain.odds import surprise
from explain.rig import LOG
from explain.test_agreement import CASES, MOST_SHOWN, MOST_SURPRISE, SEED, described
from explain.ways import too_many
from explain.wire import app, ask_http, logged
from gateway_rig import gateway
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.inspect.live import live_stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

PER_HOST, HOSTS = 20, max(10, CASES // 100)
INGRESS = {"matchLabels": {"istio": "ingress"}}


class Edge(Maker):
    """Generates routes as in the mesh, for a host that only the gateway serves."""

    def outside(self):
        found = self.virtual_services()
        for each in found:
            spec = each["spec"]
            spec["http"] = [self._at_gateway(route) for route in spec["http"]]
            for name in ("tcp", "tls", "exportTo"):
                spec.pop(name, None)
        found[0]["spec"] |= {"hosts": ["SERVICE.example.com"], "gateways": ["edge/public"]}
        found.append(self._service("SERVICE"))
        if self.one_in(2):
            rule = self.rule()
            rule["to"] = [{"operation": self.operation() | {"hosts": ["SERVICE.example.com", "SERVICE.example.com:*"]}}]
            spec = {"selector": INGRESS, "action": "DENY", "rules": [rule]}
            found.append(document(SECURITY, "AuthorizationPolicy", spec))
            found[-1]["metadata"]["namespace"] = "edge"
        subsets = [{"name": name, "labels": {"version": name}} for name in ("v1", "v2", "none")]
        spec = {"host": "SERVICE", "subsets": [*subsets, {"name": "all"}]}
        found.append(document(ISTIO, "DestinationRule", spec))
        return Case(found, [self.called() for _ in range(PER_HOST)], alone=True)

    def called(self):
        sent = [(self.pick(*HEADERS), self.pick(*VALUES)) for _ in range(self.pick(0, 1, 2, 3))]
        for often, name, values in (
            (5, "X-Forwarded-For", ("10.1.2.3", "10.1.2.3, 192.0.2.7", "nonsense")),
            (9, "X-Forwarded-Proto", ("https", "http")),
            (9, "x-forwarded-client-cert", ("By=me",)),
            (9, "Content-Type", KINDS),
            (9, "x_env", VALUES),
        ):
            if self.one_in(often):
                sent.append((name, self.pick(*values)))
        host = self.pick(*["SERVICE.example.com"] * 6, "SERVICE.EXAMPLE.com", "nobody.example.com", "example.org")
        where = {"host": host + self.pick("", "", ":80", ".", ":PORT")}
        method = self.pick("GET", "GET", "GET", "POST", "OPTIONS", "HEAD")
        if method == "OPTIONS":
            sent += [("Origin", "https://a.example"), ("Access-Control-Request-Method", "GET")]
        asked = self.plainly(method, where, sent)
        return Asked(caller="ingress-0.edge", **where, **asked, token=self.token() if self.one_in(3) else None)

    def _at_gateway(self, route):
        for match in route.get("match", ()):
            if "gateways" in match:
                match["gateways"] = [self.pick("edge/public", "mesh")]
            match.pop("port", None)
        return route

    def _service(self, name):
        return document(
            ISTIO,
            "ServiceEntry",
            {
                "hosts": [f"{name}.shop.svc.cluster.local"],
                "location": "MESH_EXTERNAL",
                "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": 65535}],
                "resolution": "STATIC",
                "endpoints": [{"address": "127.0.0.1", "labels": {"version": "v1"}}],
            },
            name,
        )

    def checked(self):
        made = self.request_authentication()
        made["metadata"] |= {"namespace": "edge", "name": "tokens"}
        made["spec"]["selector"] = INGRESS
        return made


async def test_gateways_behave_as_explained(tmp_path):
    makers = [Edge(chance) for chance in drawn(st.randoms(use_true_random=True), HOSTS, SEED)]
    cases, checked = [each.outside() for each in makers], makers[0].checked()
    port, log = free_port(), tmp_path / "access.log"
    server = {"port": {"number": port, "name": "http", "protocol": "HTTP"}, "hosts": ["*.example.com"]}
    public = document(ISTIO, "Gateway", {"selector": {"istio": "ingress"}, "servers": [server]}, "public")
    public["metadata"]["namespace"] = "edge"
    wanted = {"accessLogFile": str(log), "accessLogEncoding": "JSON", "accessLogFormat": json.dumps(LOG)}
    settled = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}}
    settled["data"] = {"mesh": json.dumps(wanted)}
    async with app() as application:
        written = [json.dumps(each) for each in (public, settled, checked)]
        for number, case in enumerate(cases):
            text = [json.dumps(each).replace("SERVICE", f"s{number}") for each in case.documents]
            written += [each.replace("65535", str(application)) for each in text]
        async with gateway("\n---\n".join(written), listening=(port,)) as made:
            assert not [each for each in made.plane.problems() if each.severity == "error"]
            pod = Instance("ingress-0", "edge", ("192.0.2.50",), labels_of({"istio": "ingress"}), gateway=True)
            made.plane.put(ObjectKey("Instance", "edge", "ingress-0"), (pod,))
            stage = live_stage(made.plane)
            await made.until_has(*(f"s{number}.example.com" for number in range(len(cases))))
            told = []
            for number, case in enumerate(cases):
                for asked in case.asked:
                    told.append(await _asked(len(told), number, case, asked, stage, port))
            lines = await logged(log, {str(index) for index, each in enumerate(told) if each.answer.status})
    for index, each in enumerate(told):
        each.answer.logged = each.answer.server_logged = lines.get(str(index), {})
        each.disagreement = disagreement(each) or too_many(each)
    wrong = [described(each) for each in told if each.disagreement]
    assert not wrong, f"{len(wrong)} of {len(told)}, among them:\n\n" + "\n\n".join(wrong[:MOST_SHOWN])
    assert surprise(told) < MOST_SURPRISE
    kinds = {outcome.verdict.kind for each in told for outcome in each.explanation.outcomes}
    assert kinds == {Kind.PASSED_ON, Kind.ANSWERED, Kind.DENIED, Kind.FAILED}


async def _asked(index, number, case, asked, stage, port):
    host = asked.host.replace("SERVICE", f"s{number}").replace("PORT", str(port))
    path, headers, known = asked.carried()
    request = Request(
        host=host,
        port=port,
        method=asked.method,
        path=path,
        headers=(*headers, ("X-Case", str(index))),
        caller=stage.find("ingress-0"),
        tokens=known,
        source="127.0.0.1",
        now=int(time.time()),
    )
    said = explain(request, stage)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        answer = await asyncio.wait_for(ask_http(reader, writer, request), 20)
    finally:
        writer.close()
    # Envoy replaces a loopback address by the machine's own.
    answer.app = answer.app and [
        re.sub(r"^(x-forwarded-for:.*?)[^, ]+$", r"\g<1>127.0.0.1", line) for line in answer.app
    ]
    return Told(case, asked, request, said, answer)
