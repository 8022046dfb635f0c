"""Dumps come from any version of Envoy, or from a file that a user has edited: for any content the result is rows or
an EnvoyError, and never a private key."""

import contextlib
import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from envoy_dumps import ADMIN, cluster, made_by
from weft.envoy import dump_bootstrap, dump_clusters, dump_endpoints, dump_listeners, dump_routes, dump_secrets
from weft.envoy.binary import EnvoyError
from weft.envoy.dump import read

SECRET = "never to be seen"
HTTP = {
    "name": "envoy.filters.network.http_connection_manager",
    "typed_config": {"route_config": {"virtual_hosts": [{"domains": ["a"], "routes": [{"match": {"prefix": "/"}}]}]}},
}
TCP = {
    "name": "envoy.filters.network.tcp_proxy",
    "typed_config": {"weighted_clusters": {"clusters": [{"name": "a", "weight": 1}]}},
}
ADDRESS = {"socket_address": {"address": "::", "port_value": 80}}
MATCH = {"destination_port": 80, "prefix_ranges": [{"address_prefix": "::", "prefix_len": 0}], "server_names": ["a"]}
SECTIONS = {
    "ClustersConfigDump": {
        "static_clusters": [cluster("outbound|80|v1|a.b", type="EDS", **made_by("x", "y")), cluster("xds")]
    },
    "ListenersConfigDump": {
        "dynamic_listeners": [
            {
                "active_state": {
                    "listener": {
                        "address": ADDRESS,
                        "additional_addresses": [{"address": ADDRESS}],
                        "filter_chains": [{"filters": [HTTP], "filter_chain_match": MATCH}],
                        "default_filter_chain": {"filters": [TCP]},
                    }
                }
            }
        ]
    },
    "RoutesConfigDump": {
        "static_route_configs": [
            {
                "route_config": {
                    "name": "80",
                    "virtual_hosts": [{"domains": ["a", "b:1"], "routes": [{"match": {"safe_regex": {}}}]}],
                }
            }
        ]
    },
    "SecretsConfigDump": {
        "dynamic_active_secrets": [
            {
                "name": "default",
                "secret": {
                    "tls_certificate": {
                        "certificate_chain": {"inline_bytes": "eA=="},
                        "private_key": {"inline_string": SECRET},
                    },
                    "validation_context": {
                        "custom_validator_config": {"typed_config": {"trust_domains": [{"name": "a"}]}}
                    },
                },
            }
        ]
    },
    "BootstrapConfigDump": {"bootstrap": {"node": {"user_agent_build_version": {"version": {"major_number": 1}}}}},
    "EndpointsConfigDump": {
        "static_endpoint_configs": [
            {
                "endpoint_config": {
                    "cluster_name": "a",
                    "endpoints": [{"locality": {"region": "r"}, "lb_endpoints": [{"endpoint": {"address": ADDRESS}}]}],
                }
            }
        ]
    },
}
WHOLE = {
    "configs": [{"@type": f"{ADMIN}.{kind}", **body} for kind, body in SECTIONS.items()],
    "cluster_statuses": [
        {"name": "a", "host_statuses": [{"address": ADDRESS, "health_status": {"eds_health_status": "HEALTHY"}}]}
    ],
}


def places(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        yield from places(child, (*path, name))


PLACES = [path for path in places(WHOLE) if path and "private_key" not in path]
ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from([[], {}, [[]], [None], [{}], {"": None}, {"name": 7}, ["a", 7], "12", "9" * 5000, "outbound|" + "9" * 5000 + "||x", "-----BEGIN CERTIFICATE-----"]),
)  # fmt: skip


def replaced(document, path, value):
    changed = copy.deepcopy(document)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return changed


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), ANYTHING)
def test_a_malformed_dump_gives_rows_or_an_error_with_a_hint(path, value):
    dump = read(json.dumps(replaced(WHOLE, path, value)).encode())
    assert SECRET not in json.dumps(dump.document)
    readers = [
        lambda: dump_clusters.table(dump_clusters.clusters(dump), named=True),
        lambda: dump_listeners.table(dump_listeners.listeners(dump), named=True),
        lambda: dump_listeners.table(dump_listeners.listeners(dump), verbose=False),
        lambda: dump_routes.table(dump_routes.routes(dump), named=True),
        lambda: dump_secrets.table(dump_secrets.secrets(dump)),
        lambda: dump_endpoints.table(dump_endpoints.clusters(dump)),
        lambda: dump_endpoints.told(dump),
    ]
    for reader in readers:
        try:
            made = reader()
        except EnvoyError:
            continue
        for row in made.rows:
            assert len(row) == len(made.columns) and all(isinstance(cell, str) for cell in row)
    with contextlib.suppress(EnvoyError):
        dump_bootstrap.versions(dump_bootstrap.bootstrap(dump))
