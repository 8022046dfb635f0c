from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import DnsLookupFamily
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions
from google.protobuf.json_format import ParseDict

from weft.explain.cluster import NoTarget, find, speaks_http2
from weft.explain.decision import Kind
from weft.explain.listener import IncomingConnection
from weft.explain.request import Speaks
from weft.explain.walk import Walk, every
from weft.explain.world import EnvoyResources, ExplainedWorkload

TO = IncomingConnection("10.0.0.9", "192.0.2.1", 8080, Speaks.HTTP)


class _World:
    def __init__(self, **names):
        self.names, self.proxy = names, EnvoyResources()
        self.same = [ExplainedWorkload(f"w{each}", (f"10.0.0.{each}",), "me", self.proxy) for each in (1, 2)]

    def at(self, address):
        return next((each for each in self.same if address in each.addresses), None)

    def uncalled(self, caller, cluster):
        return ""

    def resolve(self, host, caller, *, by_proxy=False):
        return self.names.get(host, ())


def _assignment(*addresses):
    hosts = [{"endpoint": {"address": {"socket_address": {"address": each, "port_value": 80}}}} for each in addresses]
    return ParseDict({"cluster_name": "c", "endpoints": [{"lb_endpoints": hosts}]}, ClusterLoadAssignment())


def _found(cluster, *addresses, world=None):
    resources = EnvoyResources(clusters=[cluster], endpoints=[_assignment(*addresses)])

    def journey(walk):
        target = find(walk, resources, "c", TO, ExplainedWorkload("caller"), world or _World())
        if isinstance(target, NoTarget):
            return walk.end(Kind.FAILED, target.flags)
        return walk.end(Kind.DELIVERED, f"{target.place.address}:{target.place.port}")

    return [(each.verdict.why, round(each.odds, 2)) for each in every(journey).outcomes]


def test_a_missing_or_empty_cluster_is_no_target():
    missing = find(Walk(), EnvoyResources(), "c", TO, ExplainedWorkload("caller"), _World())
    assert (missing.flags, missing.detail) == ("NC", "cluster_not_found")
    assert _found(Cluster(name="c", type=Cluster.EDS)) == [("UH", 1.0)]


def test_indistinguishable_endpoints_are_one_choice():
    eds = Cluster(name="c", type=Cluster.EDS)
    assert _found(eds, "10.0.0.1", "10.0.0.2") == [("10.0.0.1:80", 1.0)]
    assert _found(eds, "10.0.0.1", "10.0.0.2", "10.0.0.3") == [("10.0.0.1:80", 0.67), ("10.0.0.3:80", 0.33)]


def test_an_original_destination_cluster_may_override_the_port():
    cluster = Cluster(name="c", type=Cluster.ORIGINAL_DST)
    assert _found(cluster) == [("192.0.2.1:8080", 1.0)]
    cluster.original_dst_lb_config.upstream_port_override.value = 9090
    assert _found(cluster) == [("192.0.2.1:9090", 1.0)]


def test_host_names_of_endpoints_are_resolved():
    cluster = Cluster(name="c", load_assignment=_assignment("db.example"))
    cluster.cluster_type.name = "envoy.clusters.dns"
    world = _World(**{"db.example": ("192.0.2.7", "192.0.2.8")})
    assert _found(cluster, world=world) == [("192.0.2.7:80", 0.5), ("192.0.2.8:80", 0.5)]
    assert _found(cluster) == [("UH", 1.0)]


def test_only_addresses_of_the_preferred_family_are_called():
    cluster = Cluster(name="c", load_assignment=_assignment("db.example"))
    cluster.cluster_type.typed_config.Pack(DnsCluster(dns_lookup_family=DnsLookupFamily.V4_PREFERRED))
    assert _found(cluster, world=_World(**{"db.example": ("192.0.2.7", "2001:db8::7")})) == [("192.0.2.7:80", 1.0)]
    assert _found(cluster, world=_World(**{"db.example": ("2001:db8::7",)})) == [("2001:db8::7:80", 1.0)]


def test_the_http_version_of_a_cluster():
    def speaks(options, called=Speaks.HTTP):
        cluster = Cluster(name="c")
        packed = cluster.typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
        packed.Pack(ParseDict(options, HttpProtocolOptions()))
        return speaks_http2(EnvoyResources(), cluster, called)

    assert speaks({"explicit_http_config": {"http2_protocol_options": {}}})
    assert not speaks({"explicit_http_config": {"http_protocol_options": {}}})
    assert speaks({"use_downstream_protocol_config": {}}, Speaks.HTTP2)
    assert not speaks({"use_downstream_protocol_config": {}}) and not speaks_http2(
        EnvoyResources(), Cluster(), Speaks.HTTP2
    )


def _zones():
    def group(region, priority, *addresses):
        hosts = _assignment(*addresses).endpoints[0]
        hosts.locality.region, hosts.priority = region, priority
        return hosts

    result = ClusterLoadAssignment(cluster_name="c")
    result.endpoints.extend([group("eu", 0, "10.0.0.5", "10.0.0.6"), group("us", 1, "10.0.0.7")])
    return result


def _told(cluster, assignment):
    walk = Walk()
    find(
        walk, EnvoyResources(clusters=[cluster], endpoints=[assignment]), "c", TO, ExplainedWorkload("caller"), _World()
    )
    return walk.steps[-1].what


def test_failover_endpoints_are_mentioned():
    told = _told(Cluster(name="c", type=Cluster.EDS), _zones())
    assert told == (
        "c: one of 2: 10.0.0.5:80 50 %, 10.0.0.6:80 50 %; these are the closest (eu); 1 more in us for failover"
    )


def test_consistent_hashing_is_mentioned_if_there_is_a_choice():
    hashing = Cluster(name="c", type=Cluster.EDS, lb_policy=Cluster.MAGLEV)
    assert "consistent hashing: requests with the same hash key go to the same endpoint" in _told(hashing, _zones())
    assert "hash" not in _told(hashing, _assignment("10.0.0.5"))
