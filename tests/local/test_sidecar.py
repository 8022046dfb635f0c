from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface, ip_network
from pathlib import Path

from weft.local.addresses import Addresses
from weft.local.pod import PodPlan
from weft.local.sidecar import interception, proxy_plan
from weft.model.workload import Workload
from weft.netns.links import Bridge
from weft.netns.namespace import NetworkNamespace

BRIDGE = Bridge(NetworkNamespace("weft-x.mesh"), IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))


def workload(**fields: object) -> Workload:
    return Workload("web", "shop", ("true",), labels=(("app", "web"),), **fields)


def test_the_proxy_identifies_itself_as_istios_does():
    plan = PodPlan(name="web-0", workload=workload(), addresses=Addresses().pods.take("shop/web-0"), uid=10000)
    made = proxy_plan(
        plan,
        NetworkNamespace("weft-x.shop.web-0"),
        Path("/run/weft/x/pods/shop/web-0"),
        bridge=BRIDGE,
        binary=Path("/envoy"),
        xds_socket=Path("/run/weft/x/xds.sock"),
        sds_socket=Path("/run/weft/x/sds/10000/sds.sock"),
        domain="mesh.test",
    )
    address = plan.addresses.texts[0]
    assert made.bootstrap.node.id == f"sidecar~{address}~web-0.shop~shop.svc.mesh.test"
    assert made.bootstrap.node.labels == {"app": "web"}
    # For SDS the directory is visible, not the socket, so that a socket that is created again can be used.
    assert made.sockets == ("/run/weft/x/xds.sock", "/run/weft/x/sds/10000")
    assert made.bootstrap.sds is not None and made.bootstrap.sds.path == "/run/weft/x/sds/10000/sds.sock"
    assert made.bootstrap.ipv6
    assert [(each.target, each.source) for each in made.files] == [
        ("/etc/resolv.conf", "/run/weft/x/pods/shop/web-0/resolv.conf")
    ]


def test_everything_is_intercepted_but_the_proxys_own_ports_and_the_meshs_dns():
    made = interception(workload(), BRIDGE)
    assert (made.inbound_ports, made.outbound_ranges) == ("*", "*")
    assert made.inbound_ports_excluded == (15020, 15021, 15090)
    assert made.outbound_ranges_excluded == (ip_network("10.244.0.1/32"), ip_network("fd00:10:244::1/128"))


def test_what_the_workload_includes_and_excludes_is_taken_over():
    made = interception(
        workload(
            include_inbound_ports="8080, 8081",
            exclude_inbound_ports=(9000,),
            include_outbound_ranges="10.0.0.0/8,fd00::/8",
            exclude_outbound_ranges=("10.1.0.0/16",),
            include_outbound_ports=(443,),
            exclude_outbound_ports=(5432,),
        ),
        BRIDGE,
    )
    assert made.inbound_ports == (8080, 8081)
    assert 9000 in made.inbound_ports_excluded
    assert made.outbound_ranges == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert ip_network("10.1.0.0/16") in made.outbound_ranges_excluded
    assert (made.outbound_ports, made.outbound_ports_excluded) == ((443,), (5432,))


def test_inbound_interception_can_be_turned_off_for_all_ports():
    assert interception(workload(include_inbound_ports=""), BRIDGE).inbound_ports == ()
