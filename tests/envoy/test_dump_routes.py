from envoy_dumps import dump, made_by
from weft.envoy.dump_routes import BRIEF, COLUMNS, match, routes, table


def host(name, *found, domains=("*",)):
    return {"name": name, "domains": list(domains), "routes": list(found)}


def route(cluster="x", **fields):
    return {"match": {"prefix": "/"}, "route": {"cluster": cluster}, **fields}


NAMES = [
    "payments.shop.svc.cluster.local",
    "payments",
    "payments.shop.svc",
    "payments.shop",
    "10.96.0.7",
    "payments:80",
]
DUMP = dump(
    RoutesConfigDump={
        "static_route_configs": [{"route_config": {"virtual_hosts": [host("own", route())]}}],
        "dynamic_route_configs": [
            {"route_config": {"name": "inbound|8080||", "virtual_hosts": [host("inbound|http|80", route())]}},
            {"route_config": {"name": "9090", "virtual_hosts": [host("none")]}},
            {
                "route_config": {
                    "name": "80",
                    "virtual_hosts": [
                        host("payments:80", route(**made_by("virtual-service", "payments")), domains=NAMES),
                        host("allow_any", route("PassthroughCluster")),
                    ],
                }
            },
        ],
    }
)


def test_rows_are_istioctls():
    made = table(routes(DUMP))
    assert made.columns == COLUMNS
    assert made.rows == (
        ("80", "payments:80", "payments, payments.shop + 1 more...", "/*", "payments.shop"),
        ("9090", "none", "*", "/*", "404"),
        ("", "own", "*", "/*", ""),
        ("inbound|8080||", "inbound|http|80", "*", "/*", ""),
    )


def test_brief_and_named():
    assert table(routes(DUMP, "80"), verbose=False).rows == (("80", "2"),)
    assert table(routes(DUMP), verbose=False).columns == BRIEF
    assert table(routes(DUMP, "80"), named=True).rows[0][0] == "route/80"
    assert routes(DUMP, "8") == []


def test_domains_of_ipv6_keep_their_address_and_lose_their_port():
    found = dump(
        RoutesConfigDump={
            "dynamic_route_configs": [
                {
                    "route_config": {
                        "name": "1",
                        "virtual_hosts": [host("v", route(), domains=["[fd00:10:96::7]", "[fd00:10:96::7]:1"])],
                    }
                }
            ]
        }
    )
    assert table(routes(found)).rows[0][2] == "[fd00:10:96::7]"


def test_shows_how_paths_match():
    assert match({"match": {"path": "/a"}}) == "/a"
    assert match({"match": {"path_separated_prefix": "/a"}}) == "PathPrefix:/a"
    assert match({"match": {"safe_regex": {"regex": "a.*"}}}) == "regex a.*"
    assert match({"match": {"headers": []}}) == match({}) == ""


def test_the_reason_for_a_row_is_looked_up_by_its_path():
    shown = table(routes(DUMP), why=lambda name, at: f"{name}@{at}")
    assert shown.columns == (*COLUMNS, "WHY")
    told = {row[-1] for row in shown.rows}
    assert {"80@virtual_hosts[0].routes[0]", "9090@virtual_hosts[0]"} <= told
    assert [row[-1] for row in table(routes(DUMP, "80"), verbose=False, why=lambda name, at: f"{name}@{at}").rows] == [
        "80@"
    ]


def test_a_route_of_the_gateway_api_is_named_by_its_own_kind():
    noted = {"filter_metadata": {"weft": {"sources": [{"kind": "HTTPRoute", "namespace": "edge", "name": "web"}]}}}
    made = {"name": "http.80", "virtual_hosts": [host("web.example:80", route(metadata=noted))]}
    assert table([made]).rows[0][-1] == "HTTPRoute web.edge"
