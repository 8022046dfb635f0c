import pytest

from api.reading import istio, told, value
from weft.model.virtual_service import Destination, L4Match, L4Route, WeightedDestination

TO = "route: [{destination: {host: a}}]"
HTTP = f"http: [{{{TO}}}]"


def full(name):
    return f"{name}.shop.svc.cluster.local"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha3"])
def test_reads_every_kind_of_host_in_every_version(version):
    text = istio("VirtualService", f"hosts: [a, b.c, 10.0.0.1, '*.d']\n{HTTP}").replace("/v1", f"/{version}")
    assert value(text).hosts == (full("a"), "b.c", "10.0.0.1", "*.d")
    assert value(text).gateways == ("mesh",)


def test_reads_tcp_and_tls_routes():
    found = value(
        istio(
            "VirtualService",
            f"""
        hosts: [vault]
        tls:
        - match: [{{port: 8443, sniHosts: [{full("vault")}]}}]
          route: [{{destination: {{host: vault}}, weight: 60}}, {{destination: {{host: next}}, weight: 40}}]
        tcp:
        - match: [{{port: 5432, destinationSubnets: [10.0.0.0/8], sourceLabels: {{a: b}}}}]
          route: [{{destination: {{host: vault}}}}]
        """,
        )
    )
    assert found.tls == (
        L4Route(
            (L4Match(port=8443, sni_hosts=(full("vault"),)),),
            (
                WeightedDestination(Destination(full("vault")), 60, line=8),
                WeightedDestination(Destination(full("next")), 40, line=8),
            ),
            7,
        ),
    )
    assert found.tcp[0].match == (L4Match(("10.0.0.0/8",), 5432, (), (("a", "b"),)),)


def test_a_delegate_has_no_hosts():
    assert value(istio("VirtualService", HTTP)).hosts == ()


def test_every_host_at_a_gateway_is_fine():
    assert told(istio("VirtualService", f"hosts: ['*']\ngateways: [edge]\n{HTTP}")) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            f"hosts: ['*']\n{HTTP}",
            "5 the host `*` is not allowed for sidecars (the `mesh` gateway) (name the hosts, or name a "
            "gateway in `gateways`)",
        ),
        (f"hosts: [a b]\n{HTTP}", "5 `a b` is not a host name (write a name, `*.example.com` or an IP address)"),
        (
            f"hosts: [a, {full('a')}]\n{HTTP}",
            f"5 `{full('a')}` and `a` are the same host, or one covers the other",
        ),
        ("hosts: [a]", "4 the VirtualService has no routes (set `http`, `tls` or `tcp`)"),
        ("http: [{delegate: {name: b}}]", "5 a VirtualService without hosts is a delegate and cannot delegate further"),
        (
            f"gateways: [mesh]\n{HTTP}",
            "5 without `hosts` there can be no `gateways` "
            "(a VirtualService without `hosts` is a delegate: part of the http routes of another VirtualService)",
        ),
        (
            f"hosts: [a.b]\ntls: [{{match: [{{sniHosts: [c.d]}}], {TO}}}]",
            "6 the SNI host `c.d` is not among the VirtualService's hosts (its hosts are: a.b)",
        ),
        (f"hosts: [a.b]\ntls: [{{{TO}}}]", "6 `match` is required"),
        (f"hosts: [a.b]\ntls: [{{match: [{{port: 1}}], {TO}}}]", "6 `sniHosts` is required"),
        ("hosts: [a]\ntcp: [{match: [{port: 80}]}]", "6 `route` is required"),
        (f"hosts: [a]\ntcp: [{{match: [{{uri: {{}}}}], {TO}}}]", "6 unknown field `uri`"),
        (
            f"hosts: [a]\ntcp: [{{match: [{{sourceSubnet: 10.0.0.0/8}}], {TO}}}]",
            "6 neither weft nor Istio supports `sourceSubnet` (use `sourceLabels` or `sourceNamespace`)",
        ),
        (
            f"hosts: [a]\nhttp:\n- {TO}\n- match: [{{port: 80}}]\n  {TO}",
            "8 warning: this route is never used: http[0] (line 7) matches everything (move this route above http[0])",
        ),
        (f"hosts: [a]\n{HTTP}\nspecs: 1", "7 unknown field `specs`"),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert [line.split(" (known here")[0] for line in told(istio("VirtualService", spec))] == [problem]
