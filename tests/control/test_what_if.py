from datetime import UTC, datetime

from control.test_stage import DENY, shop
from weft.api.parse import parse
from weft.control.stage import Stage
from weft.control.what_if import difference
from weft.files.documents import read_documents

ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec: {hosts: [payments], http: [{route: [{destination: {host: payments}}]}]}
"""
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def with_policy():
    mesh = shop()
    for document in read_documents(DENY.encode(), "deny.yaml").documents:
        mesh.apply(document.key, parse(document).values)
    return mesh


def test_a_policy_changes_only_the_proxies_it_selects_and_the_requests_it_stops():
    found = difference(Stage(shop()), Stage(with_policy()), [], NOW)
    (proxies,) = found.proxies
    assert (proxies.pods, found.untouched) == (("payments-0.shop",), 2)
    assert [(each.what, each.kind, each.name) for each in proxies.resources] == [
        ("changed", "listener", "virtualInbound")
    ]
    stopped = {each.request.split()[0]: each.after for each in found.requests}
    assert stopped.keys() == {"frontend-0.shop", "payments-0.shop"}
    assert all(after[0].startswith("denied 403") for after in stopped.values())
    assert found.tried == 3


def test_a_route_that_only_stands_elsewhere_is_the_same():
    here, there = shop(), shop()
    for mesh, file in ((here, "a.yaml"), (there, "b.yaml")):
        for document in read_documents(ROUTE.encode(), file).documents:
            mesh.apply(document.key, parse(document).values)
    found = difference(Stage(here), Stage(there), [], NOW)
    assert (found.proxies, found.untouched) == ((), 3)


def test_no_change_is_no_difference():
    found = difference(Stage(shop()), Stage(shop()), [], NOW)
    assert (found.proxies, found.requests, found.untouched) == ((), (), 3)
