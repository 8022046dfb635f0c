import re
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.proxy import OPEN_PORTS
from weft.netns.interception import ARGUMENTS_HELP, Interception
from weft.netns.namespace import NetworkError

INIT_CONTAINER = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x  -b * -d 15090,15021,15020"


def rules_of(arguments, family=4):
    return Interception.from_arguments(arguments.split(" ")).rules(family).splitlines()


def test_reads_what_istio_gives_its_init_container():
    interception = Interception.from_arguments([*INIT_CONTAINER.split(" "), "--log_output_level=default:info"])
    assert interception == Interception(inbound_ports_excluded=(15090, 15021, 15020))
    assert set(interception.inbound_ports_excluded) == set(OPEN_PORTS)


def test_renders_the_rules_of_istios_init_container_and_those_for_calls_that_were_held():
    assert Interception().rules(4) == (
        "*nat\n"
        "-N ISTIO_INBOUND\n-N ISTIO_IN_REDIRECT\n-N ISTIO_OUTPUT\n-N ISTIO_REDIRECT\n"
        "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n"
        "-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006\n"
        "-A PREROUTING -p tcp -j ISTIO_INBOUND\n"
        "-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN\n"
        "-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN\n"
        "-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN\n"
        "-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN\n"
        "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT\n"
        "-A OUTPUT -p tcp -j ISTIO_OUTPUT\n"
        "-A ISTIO_OUTPUT -p tcp -m dscp --dscp 3 -m owner --uid-owner 1337 -j REDIRECT --to-ports 15002\n"
        "-A ISTIO_OUTPUT -p tcp -m dscp --dscp 3 -m owner --gid-owner 1337 -j REDIRECT --to-ports 15002\n"
        "-A ISTIO_OUTPUT -p tcp -m dscp --dscp 7 -m owner --uid-owner 1337 -j REDIRECT --to-ports 15003\n"
        "-A ISTIO_OUTPUT -p tcp -m dscp --dscp 7 -m owner --gid-owner 1337 -j REDIRECT --to-ports 15003\n"
        "-A ISTIO_OUTPUT -o lo -s 127.0.0.6/32 -j RETURN\n"
        "-A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 "
        "-m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT\n"
        "-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN\n"
        "-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN\n"
        "-A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 "
        "-m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT\n"
        "-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN\n"
        "-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN\n"
        "-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN\n"
        "-A ISTIO_OUTPUT -j ISTIO_REDIRECT\n"
        "COMMIT\n"
    )


def test_ipv6_has_its_own_loopback_and_inbound_source():
    text = Interception().rules(6)
    assert "-o lo -s ::6/128 -j RETURN" in text
    assert "-d ::1/128 -j RETURN" in text
    assert "127.0.0" not in text


@pytest.mark.parametrize(
    ("family", "included", "excluded", "foreign"),
    [(4, "10.0.0.0/8", "10.1.0.0/16", "fd0"), (6, "fd00::/8", "fd01::/16", "10.")],
)
def test_ranges_go_to_their_own_family_and_exclusions_come_first(family, included, excluded, foreign):
    rules = rules_of("-i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16,fd01::/16", family)
    redirect = rules.index(f"-A ISTIO_OUTPUT -d {included} -j ISTIO_REDIRECT")
    assert rules.index(f"-A ISTIO_OUTPUT -d {excluded} -j RETURN") < redirect
    assert not any(f"-d {foreign}" in rule for rule in rules)


def test_without_included_ports_nothing_inbound_is_touched():
    assert "-A PREROUTING -p tcp -j ISTIO_INBOUND" not in rules_of("-i *")


def test_without_included_ranges_nothing_outbound_is_redirected():
    assert not any("-A ISTIO_OUTPUT" in rule and rule.endswith("ISTIO_REDIRECT") for rule in rules_of("-b *"))


def test_listed_inbound_ports_are_the_only_ones():
    rules = rules_of("-b 80,443 -d 80")
    assert "-A ISTIO_INBOUND -p tcp --dport 80 -j ISTIO_IN_REDIRECT" in rules
    assert "-A ISTIO_INBOUND -p tcp --dport 443 -j ISTIO_IN_REDIRECT" in rules
    assert "-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT" not in rules


def test_including_loopback_by_name_captures_it():
    assert "-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN" not in rules_of("-i 127.1.2.3/32")


def test_virtual_interfaces_count_as_outbound_and_excluded_ones_as_nothing():
    rules = rules_of("-i 10.0.0.0/8 -b * -k tap0 -c eth9")
    assert "-A ISTIO_INBOUND -i tap0 -d 10.0.0.0/8 -j ISTIO_REDIRECT" in rules
    assert "-A ISTIO_INBOUND -i tap0 -j RETURN" in rules
    assert "-A ISTIO_INBOUND -i eth9 -j RETURN" in rules
    assert "-A ISTIO_OUTPUT -o eth9 -j RETURN" in rules


def test_the_group_is_the_user_unless_given():
    assert Interception.from_arguments(["-u", "999"]).proxy_gid == 999
    assert Interception.from_arguments(["-u", "999", "--proxy-gid", "5"]).proxy_gid == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-m TPROXY", "TPROXY is not supported"),
        ("-m NAT", "unknown interception mode"),
        ("-p", "`-p` needs a value"),
        ("-p 0", "`0` is not a number from 1"),
        ("-b 80,http", "`http` is not a number"),
        ("-d *", r"`\*` is not a number"),
        ("-i 10.0.0.0/40", "`10.0.0.0/40` is not an address range"),
        ("-x *", r"`\*` is not an address range"),
        ("-c eth0;reboot-now-please", "cannot be an interface's name"),
        ("--envoy-prot 1", "did you mean `--envoy-port`"),
        ("stray", "unknown argument `stray`"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(NetworkError, match=message):
        Interception.from_arguments(arguments.split(" "))


ports = st.lists(st.integers(1, 65535), max_size=4).map(tuple)
ranges = st.lists(st.sampled_from([ip_network(text) for text in ("10.0.0.0/8", "0.0.0.0/0", "fd00::/8")])).map(tuple)


@given(
    st.builds(
        Interception,
        inbound_ports=st.just("*") | ports,
        inbound_ports_excluded=ports,
        outbound_ranges=st.just("*") | ranges,
        outbound_ranges_excluded=ranges,
        outbound_ports=st.just("*") | ports,
        outbound_ports_excluded=ports,
        virtual_interfaces=st.sampled_from([(), ("tap0", "tap1")]),
        interfaces_excluded=st.sampled_from([(), ("eth1",)]),
        proxy_uid=st.integers(0, 65535),
    )
)
def test_arguments_read_back_are_the_same_value(interception):
    assert Interception.from_arguments(interception.arguments()) == interception


@given(st.lists(st.text(max_size=12) | st.sampled_from(["-p", "-i", "-b", "-x", "*", "80"]), max_size=6))
def test_any_arguments_give_a_value_or_a_clear_error(arguments):
    try:
        assert Interception.from_arguments(arguments).rules(4).endswith("COMMIT\n")
    except NetworkError as error:
        assert error.problem.what


def test_both_families_are_printed_as_their_commands_read_them():
    wanted = Interception.from_arguments(["-i", "*"])
    assert wanted.printed() == f"# iptables-restore\n{wanted.rules(4)}\n# ip6tables-restore\n{wanted.rules(6)}"


@pytest.mark.parametrize("line", ARGUMENTS_HELP)
def test_every_argument_that_is_explained_is_read(line):
    for name in re.findall(r"(?:^|[ ;,] ?)(-[a-z])\b", line):
        value = {"-m": "REDIRECT", "-k": "tap0", "-c": "eth0"}.get(name, "10.0.0.0/8" if "RANGES" in line else "1")
        assert Interception.from_arguments([name, value]) is not None
