import os
import socket

from weft.netns.listening import inward, listening


def listener(family, address):
    made = socket.socket(family)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind((address, 0))
    made.listen()
    return made, made.getsockname()[1]


def test_returns_the_listening_ports_by_family():
    four, port_four = listener(socket.AF_INET, "0.0.0.0")
    both, port_both = listener(socket.AF_INET6, "::")
    alone, port_alone = listener(socket.AF_INET, "127.0.0.1")
    with four, both, alone:
        found = listening(os.getpid())
        within = inward(os.getpid())
    assert {version for version, port in found if port == port_four} == {4}
    assert {version for version, port in found if port == port_both} == {4, 6}
    assert port_alone not in {port for _, port in found}
    assert port_alone in within and not within & {port_four, port_both}


def test_an_ended_process_listens_nowhere():
    assert listening(2**22 + 1) == inward(2**22 + 1) == frozenset()
