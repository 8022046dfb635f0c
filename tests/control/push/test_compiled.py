from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener

from model.builders import group
from weft.control.push.compiled import Compiled
from weft.control.push.contribute import NOTHING
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.built import from_bytes
from weft.translate.contribution import EVERY_ROUTE, Chain, Contribution, VirtualHost
from weft.translate.view import GroupView

CLUSTER, LISTENER, ROUTE, ENDPOINTS = (
    "c",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "e",
)


def built(kind, name, content=""):
    return from_bytes(kind, name, f"{name}={content}".encode())


def url(kind):
    return f"type.googleapis.com/{kind}"


def names(update):
    """Return type → name → content; None for a removed resource."""
    return {
        type_url.rpartition("/")[2]: {
            name: made and made.body.decode(errors="replace") for name, made in resources.items()
        }
        for type_url, resources in update.items()
    }


def view(policy=OutboundPolicy.ALLOW_ANY):
    return GroupView(group("web").kind, (), policy, Settings())


def compiled():
    return Compiled(
        view(),
        configure=lambda name, hosts, v: built(ROUTE, name, f"{v.policy}:" + ",".join(host.name for host in hosts)),
    )


def http(host, port="80", cluster_content=""):
    return Contribution(
        clusters=(built(CLUSTER, f"outbound|{port}||{host}", cluster_content),),
        hosts=((port, VirtualHost(host, b"")),),
    )


def test_hosts_on_one_port_share_a_route_configuration_and_a_listener():
    update = compiled().contribute({"b": http("b"), "a": http("a")})
    assert names(update)[ROUTE] == {"80": "80=ALLOW_ANY:a,b"}
    assert set(names(update)[LISTENER]) == {"0.0.0.0_80"}
    assert set(names(update)[CLUSTER]) == {"outbound|80||a", "outbound|80||b"}


def test_only_differences_are_returned():
    one = compiled()
    one.contribute({"a": http("a"), "b": http("b")})
    assert names(one.contribute({"a": http("a", cluster_content="new")})) == {
        CLUSTER: {"outbound|80||a": "outbound|80||a=new"}
    }
    assert one.contribute({"a": http("a", cluster_content="new")}) == {}


def test_the_last_host_of_a_port_takes_its_listener_and_route_along():
    one = compiled()
    one.contribute({"a": http("a"), "b": http("b")})
    assert names(one.contribute({"a": NOTHING}))[ROUTE] == {"80": "80=ALLOW_ANY:b"}
    assert names(one.contribute({"b": NOTHING})) == {
        CLUSTER: {"outbound|80||b": None},
        LISTENER: {"0.0.0.0_80": None},
        ROUTE: {"80": None},
    }


def test_a_host_that_no_service_owns_is_in_every_http_ports_routes():
    one = compiled()
    one.contribute({"a": http("a"), "b": http("b", "8080")})
    update = one.contribute({"x.example.com": Contribution(hosts=((EVERY_ROUTE, VirtualHost("x", b"")),))})
    assert names(update) == {ROUTE: {"80": "80=ALLOW_ANY:a,x", "8080": "8080=ALLOW_ANY:b,x"}}
    assert names(one.contribute({"x.example.com": NOTHING}))[ROUTE]["80"] == "80=ALLOW_ANY:a"


def test_two_services_that_claim_one_address_do_not_take_it_from_each_other():
    def tcp(host):
        return Contribution(listeners=(built(LISTENER, "10.0.0.1_3306", host),))

    one = compiled()
    one.contribute({"b": tcp("b")})
    assert names(one.contribute({"a": tcp("a")}))[LISTENER] == {"10.0.0.1_3306": "10.0.0.1_3306=a"}
    assert names(one.contribute({"a": NOTHING}))[LISTENER] == {"10.0.0.1_3306": "10.0.0.1_3306=b"}
    assert names(one.contribute({"b": NOTHING}))[LISTENER] == {"10.0.0.1_3306": None}


def test_a_new_policy_reaches_every_route_and_port():
    one = compiled()
    one.contribute({"a": http("a")})
    update = one.contribute_group(view(OutboundPolicy.REGISTRY_ONLY), Contribution())
    assert names(update)[ROUTE] == {"80": "80=REGISTRY_ONLY:a"}
    assert set(update[url(LISTENER)]) == {"0.0.0.0_80"}


def test_services_without_an_address_share_their_ports_listener():
    def by_name(host):
        fragment = Listener(filter_chains=[FilterChain(name=host)]).SerializeToString()
        return Contribution(chains=((443, Chain((host,), fragment)),))

    def chains(update):
        listener = Listener.FromString(update[url(LISTENER)]["0.0.0.0_443"].body)
        return [chain.name for chain in listener.filter_chains]

    one = compiled()
    assert chains(one.contribute({"b": by_name("b"), "a": by_name("a")})) == ["a", "b"]
    assert chains(one.contribute({"a": NOTHING})) == ["b"]
    assert names(one.contribute({"b": NOTHING})) == {LISTENER: {"0.0.0.0_443": None}}


def test_endpoints_change_without_anything_else():
    one = compiled()
    one.contribute({"a": http("a")})
    assert names(one.assign({"a": (built(ENDPOINTS, "outbound|80||a", "1"),)})) == {
        ENDPOINTS: {"outbound|80||a": "outbound|80||a=1"}
    }
    assert one.assign({"a": (built(ENDPOINTS, "outbound|80||a", "1"),)}) == {}
    assert names(one.assign({"a": ()})) == {ENDPOINTS: {"outbound|80||a": None}}


def test_finds_the_objects_that_a_resource_was_made_from():
    one = compiled()
    one.contribute({"a": http("a")})
    assert one.resource(url(CLUSTER), "outbound|80||a").name == "outbound|80||a"
    assert one.resource(url(CLUSTER), "absent") is None


def test_a_group_keeps_only_what_it_has_not_in_common_with_others():
    common = compiled()
    common.contribute({"a": http("a"), "b": http("b", "8080")})
    own = Compiled(view(), common._configure, common)
    assert own.resource(url(ROUTE), "80").body == b"80=ALLOW_ANY:a"
    update = names(own.contribute({"c": http("c")}))
    assert set(update[CLUSTER]) == {"outbound|80||c"}
    assert update[ROUTE] == {"80": "80=ALLOW_ANY:a,c"}
    assert names(own.contribute({"c": NOTHING}))[ROUTE] == {"80": None}
    assert own.resource(url(ROUTE), "80").body == b"80=ALLOW_ANY:a"


def test_a_resource_with_a_part_of_the_group_follows_the_shared_config():
    common = compiled()
    common.contribute({"a": http("a")})
    own = Compiled(view(), common._configure, common)
    own.contribute({"c": http("c")})
    common.contribute({"b": http("b")})
    assert names(own.rejoin({"b"})) == {ROUTE: {"80": "80=ALLOW_ANY:a,b,c"}}
    other = compiled()
    assert names(own.rest_upon(other)) == {ROUTE: {"80": "80=ALLOW_ANY:c"}}


def test_suspended_hosts_are_specific_to_a_group_until_they_change():
    common = compiled()
    common.contribute({"a": http("a"), "b": http("b")})
    own, other = (Compiled(view(), common._configure, common) for _ in range(2))
    hosts, update = own.suspend("80", b"")
    assert names(update) == {ROUTE: {"80": "80=ALLOW_ANY:"}}
    assert set(hosts) == {"a", "b"}
    assert other.resource(url(ROUTE), "80").body == b"80=ALLOW_ANY:a,b"
    assert names(own.rejoin({"a"})) == {ROUTE: {"80": "80=ALLOW_ANY:a"}}
    assert names(own.resume("80", ["b"])) == {ROUTE: {"80": None}}
