import pytest

from api.reading import istio, told, value


def entry(spec):
    return value(istio("WorkloadEntry", spec, name="vm-1"))


def test_reads_an_entry():
    found = entry("{address: 172.20.0.11, labels: {app: web}, ports: {http: 8080}, weight: 3, locality: eu/a}")
    assert found.addresses == ("172.20.0.11",)
    assert found.labels == (("app", "web"),)
    assert found.ports == (("http", 8080),)
    assert (found.weight, found.locality) == (3, "eu/a")
    assert found.service_account == "default"


@pytest.mark.parametrize(
    ("spec", "meshed"),
    [
        ("{address: 1.2.3.4}", False),
        ("{address: 1.2.3.4, serviceAccount: a}", True),
        ("{address: 1.2.3.4, labels: {security.istio.io/tlsMode: istio}}", True),
        ("{address: 1.2.3.4, serviceAccount: a, labels: {security.istio.io/tlsMode: disabled}}", False),
    ],
)
def test_is_meshed_by_label_or_service_account(spec, meshed):
    assert entry(spec).meshed is meshed


@pytest.mark.parametrize(
    ("address", "named"), [("vm.example.com", True), ("1.2.3.4", False), ("'fd00::1'", False), ("'unix:///x'", False)]
)
def test_host_names_and_addresses_are_distinguished(address, named):
    assert entry(f"{{address: {address}}}").named is named


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{}", "4 `address` is required"),
        ("{address: a b}", "5 `a b` is not an IP address or a host name"),
        ("{address: 'unix://x'}", "5 `unix://x` is not unix:// and the absolute path of a socket"),
        ("{address: 'unix:///x', ports: {a: 1}}", "5 a Unix socket has no ports"),
        ("{address: 1.2.3.4, ports: {a: x}}", '5 `a` must be a whole number, not "x"'),
        ("{address: 1.2.3.4, ports: {A_: 1}}", "5 `A_` is not a port name"),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert told(istio("WorkloadEntry", spec)) == [problem]
