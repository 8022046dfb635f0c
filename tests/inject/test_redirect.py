from ipaddress import ip_network

import pytest

from weft.inject.redirect import ANNOTATIONS, Redirection, arguments, of_pod, problems_of_redirection
from weft.model.proxy import OPEN_PORTS
from weft.netns.interception import EVERYTHING, Interception

PREFIX = "traffic.sidecar.istio.io/"


def test_a_pod_without_annotations_is_redirected_completely():
    assert arguments(Redirection()) == [
        *("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT"),
        *("-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020"),
    ]
    read = Interception.from_arguments(arguments(Redirection()))
    assert read == Interception(inbound_ports_excluded=read.inbound_ports_excluded)
    assert set(read.inbound_ports_excluded) == set(OPEN_PORTS)


def test_every_annotation_is_an_argument_that_istio_iptables_knows():
    said = {
        f"{PREFIX}includeOutboundIPRanges": "10.0.0.0/8, fd00::/8",
        f"{PREFIX}excludeOutboundIPRanges": "10.9.0.0/16",
        f"{PREFIX}includeInboundPorts": "80,81",
        f"{PREFIX}excludeInboundPorts": "9090, 15020",
        f"{PREFIX}includeOutboundPorts": "5432",
        f"{PREFIX}excludeOutboundPorts": "3306,3307",
        f"{PREFIX}kubevirtInterfaces": "net1",
        f"{PREFIX}excludeInterfaces": "net2,net3",
    }
    assert set(said) == set(ANNOTATIONS)
    wanted = of_pod(said, Redirection())
    assert list(problems_of_redirection(wanted)) == []
    assert Interception.from_arguments(arguments(wanted)) == Interception(
        outbound_ranges=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")),
        outbound_ranges_excluded=(ip_network("10.9.0.0/16"),),
        inbound_ports=(80, 81),
        inbound_ports_excluded=(15090, 15021, 15020, 9090),
        outbound_ports=(5432,),
        outbound_ports_excluded=(3306, 3307),
        virtual_interfaces=("net1",),
        interfaces_excluded=("net2", "net3"),
    )


def test_an_empty_annotation_beats_the_installations_default():
    defaults = Redirection(exclude_outbound_ports="3306", include_inbound_ports="*")
    said = {f"{PREFIX}excludeOutboundPorts": "", f"{PREFIX}includeInboundPorts": ""}
    read = Interception.from_arguments(arguments(of_pod(said, defaults)))
    assert read.outbound_ports_excluded == ()
    assert read.inbound_ports == ()
    assert Interception.from_arguments(arguments(of_pod({}, defaults))).outbound_ports_excluded == (3306,)


def test_another_status_port_is_left_open_and_none_is_not():
    assert "15090,15021,16020" in arguments(Redirection(), status_port=16020)
    assert "15090,15021" in arguments(Redirection(), status_port=0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("includeOutboundIPRanges", "10.0.0.0/33", "not an address range"),
        ("excludeOutboundIPRanges", "*", "not an address range"),
        ("includeInboundPorts", "http", "not a port"),
        ("excludeInboundPorts", "*", "not a port"),
        ("excludeInboundPorts", "80,0", "not a port"),
        ("excludeInboundPorts", "65536", "not a port"),
        ("excludeOutboundPorts", "-1", "not a port"),
        ("includeOutboundPorts", "80-90", "not a port"),
        ("kubevirtInterfaces", "a-name-that-is-too-long", "interface"),
        ("excludeInterfaces", "-j", "interface"),
        ("excludeInterfaces", "eth0 -j ACCEPT", "interface"),
    ],
)
def test_an_invalid_value_is_reported_with_its_field(name, value, words):
    ((found, what),) = problems_of_redirection(of_pod({PREFIX + name: value}, Redirection()))
    assert found == name
    assert words in what


def test_the_wildcard_is_an_argument_that_interception_reads():
    assert Interception.from_arguments(arguments(of_pod({f"{PREFIX}includeOutboundPorts": "*"}, Redirection())))
    assert EVERYTHING == "*"
