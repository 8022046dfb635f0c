import pytest

from api.reading import istio, read, told, value
from weft.model.service import Protocol, Resolution, ServicePort, StaticEndpoint


def test_each_host_is_a_service():
    text = istio(
        "ServiceEntry",
        """
        hosts: [a.example.com, b.example.com]
        location: MESH_EXTERNAL
        resolution: DNS
        exportTo: ["."]
        ports:
        - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
        """,
    )
    first, second = read(text).values
    assert (first.host, second.host) == ("a.example.com", "b.example.com")
    assert first.external
    assert first.resolution is Resolution.DNS
    assert first.ports == (ServicePort(80, "http", Protocol.HTTP, 8080),)
    assert first.static_endpoints == (StaticEndpoint("a.example.com"),)
    assert second.static_endpoints == (StaticEndpoint("b.example.com"),)
    assert first.export_to == (".",)


def test_reads_endpoints():
    found = value(
        istio(
            "ServiceEntry",
            """
        hosts: [bank.example.com]
        addresses: [192.0.2.10, 192.0.3.0/24]
        resolution: STATIC
        ports: [{number: 9443, name: tcp, protocol: TCP}]
        endpoints:
        - {address: 198.51.100.1, weight: 2, labels: {version: v1}}
        - {address: 198.51.100.2, ports: {tcp: 19443}}
        """,
        )
    )
    assert found.addresses == ("192.0.2.10", "192.0.3.0/24")
    assert found.static_endpoints == (
        StaticEndpoint("198.51.100.1", weight=2, labels=(("version", "v1"),)),
        StaticEndpoint("198.51.100.2", ports=(("tcp", 19443),)),
    )


def test_workloads_may_be_selected():
    found = value(
        istio(
            "ServiceEntry",
            "{hosts: [a.b], location: MESH_INTERNAL, resolution: STATIC, "
            "ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: a}}}",
        )
    )
    assert found.selector == (("app", "a"),)
    assert not found.external


PORT = "ports: [{number: 80, name: http, protocol: HTTP}]"


@pytest.mark.parametrize(
    "rest", ["resolution: DNS", "resolution: STATIC, endpoints: [{address: 192.0.2.1}]", "addresses: [192.0.2.0/24]"]
)
def test_an_entry_that_can_be_distinguished_gets_no_warning_about_its_port(rest):
    spec = f"{{hosts: [a.b], ports: [{{number: 25, name: smtp, protocol: TCP}}], {rest}}}"
    assert told(istio("ServiceEntry", spec)) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (f"{{hosts: ['*'], {PORT}}}", "5 a service entry cannot be for `*` (name the hosts, or `*.example.com`)"),
        (f"{{hosts: [], {PORT}}}", "5 `hosts` must not be empty"),
        (
            f"{{hosts: [a.b], resolution: DYNAMIC_DNS, {PORT}}}",
            "5 with `resolution: DYNAMIC_DNS` a host must be a wildcard, and `a.b` is not one "
            "(for one host set `resolution: DNS`)",
        ),
        (
            f"{{hosts: ['*.b'], resolution: DYNAMIC_DNS, addresses: [10.0.0.1], {PORT}}}",
            "5 with `resolution: DYNAMIC_DNS` the proxy resolves the called host: `addresses` is not possible",
        ),
        (
            "{hosts: ['*.b'], resolution: DYNAMIC_DNS, ports: [{number: 25, name: a, protocol: TCP}]}",
            "5 `resolution: DYNAMIC_DNS` does not support TCP: its connections name no host "
            "(use HTTP, HTTP2, GRPC or TLS)",
        ),
        (
            "{hosts: [a.b], ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: a, protocol: HTTP}]}",
            "5 two ports are named `a`",
        ),
        (
            "{hosts: [a.b], ports: [{number: 80, name: a, protocol: HTTP}, {number: 80, name: b, protocol: HTTP}]}",
            "5 port 80 is listed twice",
        ),
        (
            "{hosts: [a.b], ports: [{number: 80, name: a, protocol: HTPP}]}",
            "5 the protocol `HTPP` is not known (did you mean `HTTP`?)",
        ),
        (
            f"{{hosts: ['*.b'], resolution: DNS, {PORT}}}",
            "5 a wildcard cannot be resolved by DNS (list `endpoints`, or set `resolution: NONE`)",
        ),
        (
            f"{{hosts: [a.b], addresses: [10.0.0.0/8], resolution: DNS, {PORT}}}",
            "5 a range of addresses needs `resolution: NONE` or STATIC",
        ),
        (
            f"{{hosts: [a.b], resolution: STATIC, endpoints: [{{address: c.d}}], {PORT}}}",
            "5 `c.d` is not an IP address (for host names, set `resolution: DNS`)",
        ),
        (
            f"{{hosts: [a.b], endpoints: [{{address: c.d}}], {PORT}}}",
            "5 with `resolution: NONE` the address that the application chose is called, so there can be no endpoints "
            "(set `resolution: STATIC` or DNS)",
        ),
        (
            f"{{hosts: [a.b], resolution: STATIC, endpoints: [{{address: 1.2.3.4, ports: {{x: 1}}}}], {PORT}}}",
            "5 the service entry has no port named `x`",
        ),
        (
            f"{{hosts: [a.b], resolution: STATIC, endpoints: [{{address: 1.2.3.4}}], workloadSelector: "
            f"{{labels: {{a: b}}}}, {PORT}}}",
            "5 only one of `endpoints`, `workloadSelector` may be set",
        ),
        (
            "{hosts: [a.b, c.d], addresses: [1.2.3.4], resolution: DNS, ports: [{number: 80, name: a, protocol: TCP}]}",
            "5 port 80 is not HTTP or TLS, so several hosts cannot be distinguished (write one ServiceEntry per host)",
        ),
        (
            "{hosts: [a.b], ports: [{number: 80, name: a, protocol: TCP}]}",
            "5 warning: port 80 is not HTTP or TLS, and there are no `addresses`: this ServiceEntry gets every connection to "
            "port 80, whatever the host "
            "(list the addresses)",
        ),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert told(istio("ServiceEntry", spec)) == [problem]


def test_reads_subject_alt_names():
    assert value(istio("ServiceEntry", f"{{hosts: [a.b], subjectAltNames: [x, y], {PORT}}}")).subject_alt_names == (
        "x",
        "y",
    )
