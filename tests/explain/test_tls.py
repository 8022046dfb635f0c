from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext, UpstreamTlsContext

from weft.explain import tls
from weft.explain.decision import ObjectSource
from weft.explain.endpoint import EndpointShare
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources
from weft.model.settings import Settings
from weft.translate import tls as made

ORDERS = "spiffe://cluster.local/ns/shop/sa/orders"
FRONTEND = "spiffe://cluster.local/ns/shop/sa/frontend"
SETTINGS = Settings()
MARKED = EndpointShare("10.0.0.1", 80, marks=(("tlsMode", "istio"),))


def _cluster():
    result = Cluster(name="c")
    made.automatic(result, made.upstream((ORDERS,), "outbound_.80_._.orders", made.HTTP2, SETTINGS))
    return result


def _offer(cluster, place=MARKED, instead=()):
    return tls.offer(Walk(), EnvoyResources(), cluster, place, instead, FRONTEND)


def test_marked_endpoints_are_called_over_the_meshs_tls_and_others_in_plaintext():
    offered = _offer(_cluster())
    assert (offered.server_name, offered.offers, offered.identity) == ("outbound_.80_._.orders", made.HTTP2, FRONTEND)
    assert not offered.foreign
    assert _offer(_cluster(), EndpointShare("10.0.0.1", 80)) is None and _offer(Cluster()) is None
    assert _offer(_cluster(), instead=("istio",)).offers == ("istio",)


def test_a_cluster_with_tls_always_uses_it():
    always = Cluster(name="c", transport_socket=made.upstream((ORDERS,), "x", made.BYTES, SETTINGS))
    assert _offer(always, EndpointShare("10.0.0.1", 80)).offers == ("istio",)


def test_the_server_must_have_an_expected_identity():
    walk = Walk()
    assert tls.takes_server(walk, _offer(_cluster()), ORDERS)
    assert not tls.takes_server(walk, _offer(_cluster()), ORDERS.replace("orders", "impostor"))
    assert ORDERS in walk.steps[-1].what


def test_the_caller_must_be_in_the_trust_domain_or_allowed_by_a_policy():
    def context(callers=None):
        return DownstreamTlsContext.FromString(made.downstream(SETTINGS, callers).typed_config.value)

    assert tls.takes_client(Walk(), context(), ORDERS)
    assert not tls.takes_client(Walk(), context(), "spiffe://other.domain/ns/shop/sa/orders")
    assert not tls.takes_client(Walk(), context(), "")
    assert not tls.takes_client(Walk(), context(("spiffe://cluster.local/ns/jobs/.*",)), ORDERS)
    assert not tls.takes_client(Walk(), context(()), ORDERS)


def test_policies_are_named_only_if_the_handshake_enforces_them():
    policies = (ObjectSource("AuthorizationPolicy", "shop", "only-jobs"),)
    for callers, identity, named in (
        (("spiffe://cluster.local/ns/jobs/.*",), ORDERS, policies),
        ((), ORDERS, policies),
        (None, "spiffe://other.domain/ns/shop/sa/orders", ()),
    ):
        walk = Walk()
        context = DownstreamTlsContext.FromString(made.downstream(SETTINGS, callers).typed_config.value)
        assert not tls.takes_client(walk, context, identity, policies=policies)
        assert walk.steps[-1].sources == named


def test_tls_to_servers_outside_the_mesh_is_distinguished():
    foreign = Cluster(name="c")
    foreign.transport_socket.CopyFrom(made.upstream((ORDERS,), "x", (), SETTINGS))
    foreign.transport_socket.typed_config.Pack(UpstreamTlsContext(sni="db.example"))
    assert _offer(foreign).foreign and not _offer(foreign).identity
