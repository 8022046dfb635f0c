from tests.inspect.reasons.told import CLUSTER, mesh_of, rule, told

from model.builders import instance, put
from weft.inspect.ask.why import why
from weft.inspect.stage import Stage

PODS = "endpoints[0].lb_endpoints"


def endpoint(mesh, address, name=CLUSTER):
    return told(mesh, f"{name}.{PODS}[{address}]", kind="endpoints")


def test_an_endpoint_is_the_pod_that_the_service_selects():
    found, by = endpoint(mesh_of(), "10.244.0.3:8080")
    assert found == ("Pod shop/payments-0", "Service shop/payments (service.yaml:2)")
    assert by == ("ready-endpoints", "endpoint-tls")


def test_an_endpoint_without_a_proxy_has_the_plaintext_rule():
    mesh = mesh_of()
    put(mesh, instance("payments-1", "payments", address="10.244.0.9", meshed=False, workload="payments"))
    assert endpoint(mesh, "10.244.0.9:8080")[1] == ("ready-endpoints", "endpoint-plaintext")


def test_a_subset_has_those_with_its_labels():
    mesh = mesh_of(rule=rule("host: payments\nsubsets: [{name: v1, labels: {app: payments}}]"))
    name = "outbound|80|v1|payments.shop.svc.cluster.local"
    assert told(mesh, name, kind="endpoints") == (
        ("DestinationRule shop/payments subsets[v1] (rule.yaml:6)", "Service shop/payments (service.yaml:2)"),
        ("ready-endpoints", "subset-by-labels"),
    )
    assert "subset-by-labels" in endpoint(mesh, "10.244.0.3:8080", name)[1]


def test_an_endpoint_in_a_service_entry_names_the_service_entry():
    spec = """
hosts: [bank.example.com]
location: MESH_EXTERNAL
resolution: STATIC
ports: [{number: 443, name: tls, protocol: TLS}]
endpoints: [{address: 192.0.2.7}]
"""
    mesh = mesh_of(entry=rule(spec, name="bank", kind="ServiceEntry"))
    assert endpoint(mesh, "192.0.2.7:443", "outbound|443||bank.example.com") == (
        ("ServiceEntry shop/bank (entry.yaml:1)",),
        ("written-endpoints", "endpoint-plaintext"),
    )


def test_agent_secrets_name_the_service_account_and_the_mesh_roots():
    account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: orders, namespace: shop}\n"
    mesh = mesh_of(account=account)
    assert told(mesh, "default", kind="secret") == (
        ("ServiceAccount shop/orders (account.yaml:1)",),
        ("workload-certificate",),
    )
    assert told(mesh, "ROOTCA", kind="secret") == ((), ("mesh-roots",))
    (nobody,) = why(mesh, Stage(mesh), "frontend-0.shop", "default", "secret")
    assert nobody.parts[0].sources == ("ServiceAccount shop/frontend",)
