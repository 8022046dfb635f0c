from model.builders import service
from weft.translate.domains import addresses, domains, virtual_addresses

HOST = "orders.shop.svc.cluster.local"


def test_the_short_name_exists_only_in_the_own_namespace():
    inside = domains(HOST, None, "shop", "cluster.local")
    outside = domains(HOST, None, "sales", "cluster.local")
    assert set(inside) - set(outside) == {"orders"}
    assert set(outside) == {HOST, f"{HOST}.", "orders.shop", "orders.shop.svc"}


def test_a_host_outside_has_no_short_forms():
    assert domains("api.example.com", None, "shop", "cluster.local") == ("api.example.com", "api.example.com.")


def test_addresses_are_names_too_with_brackets_in_version_6():
    orders = service("orders", addresses=("10.96.0.1", "fd00::1", "203.0.113.0/24"))
    assert addresses(orders) == ["10.96.0.1", "[fd00::1]"]
    assert virtual_addresses(orders) == ("10.96.0.1", "fd00::1")
    assert "[fd00::1]" in domains(HOST, orders, "shop", "cluster.local")


def test_a_headless_service_has_the_names_of_its_pods():
    found = domains(HOST, service("orders", headless=True), "shop", "cluster.local")
    assert f"*.{HOST}" in found and "*.orders" in found
