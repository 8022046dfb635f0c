import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from google.protobuf import json_format

from weft.envoy.binary import EnvoyError
from weft.envoy.validate import bootstrap, validate

# The JSON parser knows a message type only after its module has been imported.
MANAGER = http_connection_manager_pb2.HttpConnectionManager.DESCRIPTOR.full_name
ROUTER = router_pb2.Router.DESCRIPTOR.full_name


def listener(route="80", default_chain=False):
    """A listener as a control plane sends it: it refers to its routes by name."""
    chain = {
        "filters": [
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": f"type.googleapis.com/{MANAGER}",
                    "stat_prefix": "test",
                    "rds": {"route_config_name": route, "config_source": {"ads": {}, "resource_api_version": "V3"}},
                    "http_filters": [
                        {
                            "name": "envoy.filters.http.router",
                            "typed_config": {"@type": f"type.googleapis.com/{ROUTER}"},
                        }
                    ],
                },
            }
        ]
    }
    chains = {"default_filter_chain": chain} if default_chain else {"filter_chains": [chain]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 80}}
    return json_format.ParseDict({"name": "l", "address": address, **chains}, listener_pb2.Listener())


def routes(name="80", regex=".*"):
    route = {"match": {"safe_regex": {"regex": regex}}, "route": {"cluster": "outbound|80||web.shop"}}
    hosts = [{"name": "web", "domains": ["*"], "routes": [route]}]
    return json_format.ParseDict({"name": name, "virtual_hosts": hosts}, route_pb2.RouteConfiguration())


def cluster():
    config = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}
    document = {"name": "outbound|80||web.shop", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": config}
    return json_format.ParseDict(document, cluster_pb2.Cluster())


def endpoints(address="10.0.0.1", priority=0):
    endpoint = {"endpoint": {"address": {"socket_address": {"address": address, "port_value": 80}}}}
    document = {
        "cluster_name": "outbound|80||web.shop",
        "endpoints": [{"priority": priority, "lb_endpoints": [endpoint]}],
    }
    return json_format.ParseDict(document, endpoint_pb2.ClusterLoadAssignment())


async def complaints(**resources):
    return " | ".join(problem.what for problem in await validate(**resources))


async def test_good_resources_have_no_problem_and_stay_as_they_were():
    resources = {
        "listeners": [listener()],
        "clusters": [cluster()],
        "routes": [routes()],
        "endpoints": [endpoints()],
    }
    before = {kind: [message.SerializeToString() for message in messages] for kind, messages in resources.items()}
    assert await validate(**resources) == []
    after = {kind: [message.SerializeToString() for message in messages] for kind, messages in resources.items()}
    assert after == before


@pytest.mark.parametrize("listeners", [[listener()], [listener(default_chain=True)], []])
async def test_a_bad_route_is_found_whether_or_not_a_listener_names_it(listeners):
    assert "missing )" in await complaints(listeners=listeners, clusters=[cluster()], routes=[routes(regex="(")])


async def test_a_route_to_nowhere_is_found():
    assert "unknown cluster 'outbound|80||web.shop'" in await complaints(
        listeners=[listener()], routes=[with_validated_clusters(routes())]
    )


async def test_a_bad_endpoint_is_found():
    assert "malformed IP address" in await complaints(clusters=[cluster()], endpoints=[endpoints("not-an-address")])


async def test_a_bad_cluster_is_found():
    bad = cluster()
    bad.lb_policy = cluster_pb2.Cluster.RING_HASH
    bad.ring_hash_lb_config.minimum_ring_size.value = 9_000_000
    said = await complaints(clusters=[bad])
    assert said.startswith("Proto constraint validation failed")
    assert "MinimumRingSize: value must be less than" in said


async def test_several_routes_without_listeners_are_judged_together():
    assert await validate(clusters=[cluster()], routes=[routes("80"), routes("81")]) == []


async def test_a_missing_binary_is_an_error(monkeypatch):
    monkeypatch.setenv("WEFT_ENVOY", "/no/such/envoy")
    with pytest.raises(EnvoyError):
        await validate()


def with_validated_clusters(route):
    route.validate_clusters.value = True
    return route


def secured(context: str) -> dict:
    service = {"envoy_grpc": {"cluster_name": "sds-grpc"}}
    source = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    config = {"resource_api_version": "V3", "initial_fetch_timeout": "0s", "api_config_source": source}
    kind = getattr(tls_pb2, context).DESCRIPTOR.full_name
    secrets = {"tls_certificate_sds_secret_configs": [{"name": "default", "sds_config": config}]}
    tls = {"@type": f"type.googleapis.com/{kind}", "common_tls_context": secrets}
    return {"name": "envoy.transport_sockets.tls", "typed_config": tls}


async def test_secrets_may_come_from_the_cluster_that_every_proxy_has():
    upstream, downstream = cluster(), listener()
    json_format.ParseDict(secured("UpstreamTlsContext"), upstream.transport_socket)
    json_format.ParseDict(secured("DownstreamTlsContext"), downstream.filter_chains[0].transport_socket)
    assert await validate(listeners=[downstream], routes=[routes()], clusters=[upstream]) == []
    # Envoy's validation does not check that the cluster exists; a running Envoy would reject the resource.
    assert "sds-grpc" in [each.name for each in bootstrap(clusters=[upstream]).static_resources.clusters]
