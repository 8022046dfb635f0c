from authority import Authority
from control.reasons.test_gateways import EDGE, TO_PAYMENTS
from control.reasons.told import mesh_of, rule
from translate.test_gateway_tls import pair
from weft.control.description import describe_pod
from weft.control.description_gateway import served
from weft.control.description_text import pod_lines
from weft.control.stage import Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey, labels_of

POD = Instance("edge-0", "edge", ("10.1.0.9",), labels_of({"istio": "ingress"}), gateway=True)


def edge():
    mesh = mesh_of(
        public=rule(EDGE, "public", "edge", "Gateway"),
        a=rule(f"hosts: ['*.a.com']\n{TO_PAYMENTS}", "a", kind="VirtualService"),
        secret=pair("shop", Authority().issue("*.a.com")).removeprefix("---\n"),
        deny=rule("action: DENY\nrules: [{}]", "deny", "edge", "AuthorizationPolicy", "security"),
    )
    mesh.apply(ObjectKey("Pod", "edge", "edge-0"), (POD,))
    return mesh


def test_of_each_server_what_it_shows_and_whose_routes_it_has_is_told():
    plain, safe, https, files, lost = served(edge(), POD)
    assert [where.object for where in plain.routings] == ["VirtualService shop/a"]
    assert (safe.redirects, safe.routings) == (True, ())
    (shown,) = https.shows
    assert (shown.name, shown.hosts, shown.there) == ("Secret edge/shop", ("*.a.com",), True)
    assert shown.until.startswith("20")
    assert (files.tls, files.shows[0].name) == ("MUTUAL", "/a/crt")
    assert not lost.shows[0].there


def test_a_gateway_is_described_by_what_it_serves():
    mesh = edge()
    lines = list(pod_lines(describe_pod(mesh, Stage(mesh), (), "edge-0")))
    assert "Gateway edge/public (public.yaml:1): port 443/HTTPS" in lines
    assert "   Hosts: *.a.com" in lines and "   TLS: SIMPLE" in lines
    assert "      Shows Secret edge/lost, which is not there: these hosts are closed" in lines
    assert "   VirtualServices: shop/a" in lines
    assert "   Sends its callers to HTTPS" in lines
    assert "   AuthorizationPolicy edge/deny (deny.yaml:1): DENY, 1 rule" in lines
    assert not [line for line in lines if "Mutual TLS" in line or line.startswith("Sidecar")]


def test_nobody_else_serves_anything():
    assert served(edge(), Instance("web-0", "shop", ())) == ()
