import os
import socket
import subprocess

import pytest

from weft.netns import namespace as netns
from weft.netns.loopback import carry_inbound_source

pytestmark = pytest.mark.root


@pytest.fixture
def pod():
    made = netns.make(f"weft-loopback-{os.getpid()}")
    subprocess.run(["ip", "-n", made.name, "link", "set", "lo", "up"], check=True)
    yield made
    netns.delete(made)


def test_the_proxy_can_bind_the_address_from_then_on(pod):
    def bind():
        with socket.socket(socket.AF_INET6) as made:
            made.bind(("::6", 0))

    with pytest.raises(OSError):
        netns.run_in(pod, bind)
    assert carry_inbound_source(pod) is True
    netns.run_in(pod, bind)
    shown = subprocess.run(["ip", "-n", pod.name, "addr", "show", "dev", "lo"], check=True, capture_output=True).stdout
    assert b"::6/128 scope global nodad" in shown  # with duplicate detection, nobody could bind it for a while
    assert carry_inbound_source(pod) is True  # again


def test_a_pod_without_ipv6_needs_none(pod):
    subprocess.run(["ip", "netns", "exec", pod.name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], check=True)
    assert carry_inbound_source(pod) is False
