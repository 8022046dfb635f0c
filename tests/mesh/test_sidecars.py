from model.builders import group, put
from weft.mesh.mesh import Mesh
from weft.model.names import labels_of
from weft.model.sidecar import EgressListener, OutboundPolicy, Sidecar
from weft.model.virtual_service import Destination


def test_a_sidecar_for_a_workload_overrides_the_namespaces_and_the_roots():
    mesh = Mesh()
    put(mesh, Sidecar("default", "istio-system", outbound_policy=OutboundPolicy.REGISTRY_ONLY))
    assert mesh.outbound_policy(group("web")) is OutboundPolicy.REGISTRY_ONLY
    put(mesh, Sidecar("default", "shop", outbound_policy=OutboundPolicy.ALLOW_ANY))
    assert mesh.outbound_policy(group("web")) is OutboundPolicy.ALLOW_ANY
    put(mesh, Sidecar("web", "shop", labels_of({"app": "web"}), outbound_policy=OutboundPolicy.REGISTRY_ONLY))
    assert mesh.outbound_policy(group("web")) is OutboundPolicy.REGISTRY_ONLY
    assert mesh.outbound_policy(group("cart")) is OutboundPolicy.ALLOW_ANY


def test_the_egress_proxy_is_visible_whatever_the_sidecar_imports():
    mesh = Mesh()
    proxy = Destination("proxy.example.com", port=3128)
    put(mesh, Sidecar("default", "shop", egress=(EgressListener(("./none",)),), outbound_policy=proxy))
    assert mesh.outbound_policy(group("web")) == proxy
    assert mesh.scope(group("web")).asked == (("proxy.example.com", 3128),)
