from analyze.meshes import WEB, istio, said

HEADLESS = WEB.replace("spec: {selector: {app: web},", "spec: {clusterIP: None, selector: {app: web},")
BARE = WEB.replace(
    "labels: {app: web, version: v2}", "labels: {app: web, version: v2, sidecar.istio.io/inject: 'false'}"
)


def peer(spec, name="default", namespace="shop", created=""):
    when = f", creationTimestamp: '{created}'" if created else ""
    return (
        "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\n"
        f"metadata: {{name: {name}, namespace: {namespace}{when}}}\nspec: {spec}\n"
    )


def rule(tls, more="", host="web"):
    return istio("DestinationRule", f"{{host: {host}, trafficPolicy: {{tls: {tls}}}{more}}}")


STRICT, DISABLED = peer("{mtls: {mode: STRICT}}"), peer("{mtls: {mode: DISABLE}}")


def test_callers_and_workloads_that_agree_about_tls_have_no_findings():
    assert said(WEB + STRICT) == []
    assert said(WEB + STRICT + rule("{mode: ISTIO_MUTUAL}")) == []
    assert said(WEB + DISABLED + rule("{mode: DISABLE}")) == []
    assert said(WEB + rule("{mode: DISABLE}")) == []


def test_strict_for_workloads_without_a_proxy_is_reported():
    nobody = WEB.replace(
        "metadata: {name: web-v", "metadata: {annotations: {sidecar.istio.io/inject: 'false'}, name: web-v"
    )
    (line,) = said(nobody + STRICT + rule("{mode: DISABLE}"))
    assert "PeerAuthentication shop/default: spec: warning: " in line
    assert "without a proxy, so plaintext is not rejected" in line
    assert "web-v1, web-v2 run without" in line
    assert said(nobody + peer("{mtls: {mode: PERMISSIVE}}")) == []
    assert said(BARE + STRICT) == []  # some have one


def test_plaintext_to_strict_workloads_is_reported():
    (line,) = said(WEB + STRICT + rule("{mode: DISABLE}"))
    assert (
        "DestinationRule shop/x: spec: warning: calls to port 80 of web.shop.svc.cluster.local fail: they are plaintext"
        in line
    )
    assert "web-v1 accepts only mutual TLS" in line
    assert len(said(WEB + peer("{mtls: {mode: STRICT}}", namespace="istio-system") + rule("{mode: DISABLE}"))) == 1


def test_the_port_level_mode_decides():
    ports = "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}}}"
    assert said(WEB + peer(ports) + rule("{mode: DISABLE}")) == []


def test_each_subset_is_checked_separately():
    only = peer("{selector: {matchLabels: {version: v2}}, mtls: {mode: STRICT}}")
    subsets = ", subsets: [{name: v1, labels: {version: v1}, trafficPolicy: {tls: {mode: DISABLE}}}]"
    assert said(WEB + only + rule("{mode: ISTIO_MUTUAL}", subsets)) == []
    (line,) = said(WEB + only + rule("{mode: ISTIO_MUTUAL}", subsets.replace("version: v1", "version: v2")))
    assert "web-v2 accepts only mutual TLS" in line


def test_mutual_tls_to_workloads_without_a_proxy_or_with_tls_disabled_is_reported():
    (line,) = said(BARE + rule("{mode: ISTIO_MUTUAL}"))
    assert "web-v2 has no proxy there to terminate the TLS" in line
    (line,) = said(WEB + DISABLED + rule("{mode: ISTIO_MUTUAL}"))
    assert "which a PeerAuthentication disables for web-v1" in line


def test_a_headless_service_that_is_half_in_the_mesh_is_reported():
    assert said(HEADLESS) == []
    (line,) = said(BARE.replace("{selector:", "{clusterIP: None, selector:"))
    assert "Service shop/web: spec.ports[0]: warning: port 80 is called in plaintext: web-v2 does not accept" in line


def test_a_server_name_that_is_not_verified_is_reported():
    ports = "ports: [{number: 443, name: tcp, protocol: TCP}]"
    entry = istio("ServiceEntry", f"{{hosts: ['*.a.b'], addresses: [192.0.2.1], {ports}}}")
    (line,) = said(entry + rule("{mode: SIMPLE, insecureSkipVerify: true}", host="'*.a.b'"))
    assert "`insecureSkipVerify`: the certificate of *.a.b" in line
    (line,) = said(entry + rule("{mode: SIMPLE}", host="'*.a.b'"))
    assert "the name in the certificate of port 443 of *.a.b is not verified" in line
    assert said(entry + rule("{mode: SIMPLE, sni: c.a.b}", host="'*.a.b'")) == []


def test_a_peer_authentication_that_selects_no_workload_is_reported():
    (line,) = said(WEB + peer("{selector: {matchLabels: {app: wbe}}, mtls: {mode: STRICT}}"))
    assert "spec.selector: warning: no workload of namespace shop has the labels app=wbe" in line
    (line,) = said(WEB + peer("{selector: {matchLabels: {app: web}}}", namespace="istio-system"))
    assert "with a `selector` it has no effect" in line


def test_the_newer_of_two_peer_authentications_for_the_same_workloads_is_reported():
    old = peer("{mtls: {mode: DISABLE}}", "zz", created="2026-01-01T00:00:00Z")
    (line,) = said(WEB + peer("{mtls: {mode: STRICT}}", "aa", created="2026-01-02T00:00:00Z") + old)
    assert "PeerAuthentication shop/aa: spec: warning: PeerAuthentication shop/zz is older" in line


def test_the_second_by_name_of_two_peer_authentications_without_an_age_is_reported():
    (line,) = said(WEB + peer("{mtls: {mode: STRICT}}", "zz") + peer("{mtls: {mode: DISABLE}}", "aa"))
    assert "PeerAuthentication shop/zz: spec: warning: PeerAuthentication shop/aa comes first by its name" in line


def test_a_service_port_in_port_level_mtls_is_reported():
    (line,) = said(WEB + peer("{selector: {matchLabels: {app: web}}, portLevelMtls: {80: {mode: DISABLE}}}"))
    assert "80 is the Service's port, and the workload listens on port 8080" in line


def test_a_mode_for_a_port_that_no_workload_has_is_reported():
    spec = "{selector: {matchLabels: {app: web}}, portLevelMtls: {9999: {mode: DISABLE}}}"
    (line,) = said(WEB + peer(spec))
    assert (
        "spec.portLevelMtls.9999: warning: no workload that the PeerAuthentication selects declares port 9999: this "
        "mode has no effect"
    ) in line
    assert "(hint: declared: 8080)" in line
    assert said(WEB.replace(", ports: [{name: http, port: 8080}]", "") + peer(spec)) == []  # they do not say


def test_simple_tls_to_a_sidecar_is_reported():
    (line,) = said(WEB + STRICT + rule("{mode: SIMPLE}"))
    assert (
        "calls to port 80 of web.shop.svc.cluster.local fail: they are TLS without a certificate of the mesh, and "
        "web-v1 accepts only mutual TLS there"
    ) in line
    tcp = WEB.replace("name: http, port: 80,", "name: tcp, port: 80,")
    assert len(said(tcp + STRICT + rule("{mode: SIMPLE}"))) == 1
    assert said(tcp + rule("{mode: SIMPLE}")) == []  # the application's own business
    (line,) = said(WEB + rule("{mode: SIMPLE}"))
    assert "web-v1 expects HTTP there" in line
    assert (
        said(WEB.replace("app: web, ver", "sidecar.istio.io/inject: 'false', app: web, ver") + rule("{mode: SIMPLE}"))
        == []
    )
