import pytest

from api.gateway_api.objects import http_route, standard
from api.reading import told, value
from weft.model.gateway_api import ParentRef

RULE = "- backendRefs: [{name: web, port: 80}]"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{name: edge}", ParentRef("Gateway", "shop", "edge")),
        (
            "{name: edge, namespace: far, sectionName: https, port: 443}",
            ParentRef("Gateway", "far", "edge", "https", 443, namespaced=True),
        ),
        (
            '{group: "", kind: Service, name: web, port: 80}',
            ParentRef("Service", "shop", "web", "", 80, "web.shop.svc.cluster.local", ""),
        ),
        (
            "{group: networking.istio.io, kind: ServiceEntry, name: partner, port: 443}",
            ParentRef("ServiceEntry", "shop", "partner", "", 443, group="networking.istio.io"),
        ),
        ("{kind: Service, name: web}", ParentRef("Service", "shop", "web", host="web.shop.svc.cluster.local")),
    ],
)
def test_parents_are_gateways_services_and_service_entries(written, expected):
    assert value(http_route(RULE, f"[{written}]")).parents == (expected,)


def test_other_parents_are_reported_and_ignored():
    text = http_route(RULE, "[{group: networking.istio.io, kind: Sidecar, name: web}, {name: edge}]")
    assert told(text) == [
        "5 warning: weft does not support a Sidecar of networking.istio.io as a parent "
        '(a Gateway or ListenerSet (gateway.networking.k8s.io), a Service (group: "") or a ServiceEntry (networking.istio.io) can be a '
        "parent)"
    ]
    assert [(each.name, each.index) for each in value(text).parents] == [("edge", 1)]


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        ("{name: web}", "7 a backend that is a Service needs a `port`"),
        ("{name: web, port: 80, weight: -1}", "7 `weight` must be between 0 and 1000000, not -1"),
        ("{name: web, port: 80, namespace: A}", "7 `A` is not a namespace"),
    ],
)
def test_invalid_backends_are_rejected(backend, problem):
    assert told(http_route(f"- backendRefs: [{backend}]")) == [problem]


def test_a_backend_of_another_kind_is_kept_for_the_status():
    (backend,) = value(http_route("- backendRefs: [{group: a.b, kind: Pool, name: web}]")).rules[0].backends
    assert (backend.group, backend.kind) == ("a.b", "Pool")


def test_hostnames_are_case_insensitive_and_cannot_be_a_star():
    text = "parentRefs: [{name: edge}]\nhostnames: [Shop.Example.com, '*.example.org']"
    assert value(standard("HTTPRoute", text)).hostnames == ("shop.example.com", "*.example.org")
    assert told(standard("HTTPRoute", "parentRefs: [{name: edge}]\nhostnames: ['*']")) == [
        "6 `*` is not a host name (write a name, or `*.example.com`)"
    ]


def test_a_route_without_parents_is_reported():
    assert told(standard("HTTPRoute", "hostnames: [a.b]")) == [
        "4 warning: the route has no parent, and no effect (name a Gateway or a Service in `parentRefs`)"
    ]


def test_a_parent_service_without_group_gets_a_warning_about_clusters():
    (said,) = told(http_route(RULE, "[{kind: Service, name: web}]"))
    assert said.startswith('5 warning: without `group: ""`') and said.endswith('(write group: "")')
    assert told(http_route(RULE, '[{group: "", kind: Service, name: web}]')) == []
