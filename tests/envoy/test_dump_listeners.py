import pytest

from envoy_dumps import dump
from weft.envoy.dump_listeners import COLUMNS, ListenerFilter, kind, listeners, table

HTTP = "envoy.filters.network.http_connection_manager"
TCP = "envoy.filters.network.tcp_proxy"


def chain(filter_name, wanted=None, **settings):
    made = {"filters": [{"name": "envoy.filters.network.rbac"}, {"name": filter_name, "typed_config": settings}]}
    return made | ({"filter_chain_match": wanted} if wanted else {})


def listener(name, address, port, *chains, **fields):
    body = {"name": name, "address": {"socket_address": {"address": address, "port_value": port}}, **fields}
    return {"name": name, "active_state": {"listener": {**body, "filter_chains": list(chains)}}}


ALL = {"match": {"prefix": "/"}, "route": {"cluster": "inbound|8080||"}}
DUMP = dump(
    ListenersConfigDump={
        "dynamic_listeners": [
            listener(
                "virtualInbound",
                "0.0.0.0",
                15006,
                chain(TCP, {"destination_port": 15006}, cluster="BlackHoleCluster"),
                chain(
                    HTTP,
                    {
                        "destination_port": 8080,
                        "transport_protocol": "tls",
                        "application_protocols": ["istio-peer-exchange", "istio"],
                    },
                    route_config={"virtual_hosts": [{"domains": ["*"], "routes": [ALL]}]},
                ),
                chain(
                    TCP,
                    {"prefix_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}], "server_names": ["a", "b"]},
                    cluster="InboundPassthroughCluster",
                ),
                additional_addresses=[{"address": {"socket_address": {"address": "::", "port_value": 15006}}}],
            ),
            listener(
                "0.0.0.0_80",
                "0.0.0.0",
                80,
                chain(
                    HTTP, {"application_protocols": ["http/1.0", "http/1.1", "h2c"]}, rds={"route_config_name": "80"}
                ),
                default_filter_chain=chain(TCP, cluster="PassthroughCluster"),
            ),
            listener("10.96.0.7_7000", "10.96.0.7", 7000, chain(TCP, cluster="outbound|7000||ledger")),
            {"name": "refused", "error_state": {"details": "bad"}},
        ],
        "static_listeners": [
            {
                "listener": {
                    "address": {"socket_address": {"address": "::", "port_value": 15021}},
                    "filter_chains": [
                        chain(
                            HTTP,
                            route_config={
                                "virtual_hosts": [
                                    {
                                        "domains": ["a", "b"],
                                        "routes": [{"match": {"path": "/x"}}, {"match": {"prefix": "/y"}}],
                                    }
                                ]
                            },
                        )
                    ],
                }
            }
        ],
    }
)


def test_rows_are_istioctls_in_istioctls_order():
    made = table(listeners(DUMP))
    assert made.columns == COLUMNS
    assert made.rows == (
        ("0.0.0.0", "80", "App: HTTP", "Route: 80"),
        ("0.0.0.0", "80", "ALL", "PassthroughCluster"),
        ("10.96.0.7", "7000", "ALL", "Cluster: outbound|7000||ledger"),
        ("0.0.0.0,::", "15006", "Addr: *:15006", "Non-HTTP/Non-TCP"),
        ("0.0.0.0,::", "15006", "SNI: a,b; Addr: 10.0.0.0/8", "InboundPassthroughCluster"),
        ("0.0.0.0,::", "15006", "Trans: tls; App: TCP TLS; Addr: *:8080", "Cluster: inbound|8080||"),
        ("::", "15021", "ALL", "Inline Route: a/b /x, /y*"),
    )


def test_brief_rows_show_the_type_and_named_rows_the_name():
    rows = table(listeners(DUMP), verbose=False, named=True).rows
    assert rows[0] == ("listener/0.0.0.0_80", "0.0.0.0", "80", "HTTP+TCP")
    assert [row[-1] for row in rows] == ["HTTP+TCP", "TCP", "HTTP+TCP", "HTTP"]


def test_a_listener_that_drops_everything_has_no_type():
    assert kind(listener("x", "a", 1, chain(TCP, cluster="BlackHoleCluster"))["active_state"]["listener"]) == "UNKNOWN"
    assert kind({}) == "UNKNOWN"


def test_shares_of_tcp_are_shown():
    shares = {"clusters": [{"name": "outbound|1|v1|a", "weight": 9}, {"name": "outbound|1|v2|a", "weight": 1}]}
    found = dump(
        ListenersConfigDump={"dynamic_listeners": [listener("x", "a", 1, chain(TCP, weighted_clusters=shares))]}
    )
    assert table(listeners(found)).rows[0][-1] == "Clusters: outbound|1|v1|a (9), outbound|1|v2|a (1)"


@pytest.mark.parametrize(
    ("wanted", "ports"),
    [
        (ListenerFilter(port=80), [80]),
        (ListenerFilter(address="::"), [15006, 15021]),
        (ListenerFilter(type="tcp"), [7000]),
        (ListenerFilter(type="HTTP", address="0.0.0.0"), []),
    ],
)
def test_several_filters_must_all_match(wanted, ports):
    found = listeners(DUMP, wanted)
    assert [each["address"]["socket_address"]["port_value"] for each in found] == ports


def test_tolerates_what_it_does_not_know():
    odd = [
        {
            "active_state": {
                "listener": {"name": "x", "filter_chains": [{"filters": [{"name": HTTP, "typed_config": "?"}]}, 7]}
            }
        }
    ]
    assert table(listeners(dump(ListenersConfigDump={"dynamic_listeners": odd}))).rows == (("", "0", "ALL", "HTTP"),)


def test_the_reason_for_a_row_is_looked_up_by_the_index_of_its_filter_chain():
    body = listener("l", "0.0.0.0", 80, chain(TCP, cluster="a"), chain(TCP, cluster="b"))["active_state"]["listener"]
    body["default_filter_chain"] = chain(TCP, cluster="c")
    shown = table([body], why=lambda name, at: f"{name}@{at}")
    assert shown.columns == (*COLUMNS, "WHY")
    assert {row[3]: row[4] for row in shown.rows} == {
        "Cluster: a": "l@filter_chains[0]",
        "Cluster: b": "l@filter_chains[1]",
        "Cluster: c": "l@default_filter_chain",
    }
