import json

import pytest

from weft.cli.look.proxy_config.on_demand import print_on_demand
from weft.cli.look.proxy_config.source import ProxySource


class Proxy:
    """A proxy whose admin API responds with a fixed config."""

    def __init__(self, *hosts, on_demand=True):
        self.hosts, self.on_demand = hosts, on_demand

    def admin(self, proxy, path, query):
        if path == "/config_dump":
            return b'{"configs": [{"odcds_config": {}}]}' if self.on_demand else b"{}"
        names = ("inbound|80||", "hold|15001|10.0.0.1", *(f"outbound|80|v1|{host}" for host in self.hosts))
        return json.dumps({"cluster_statuses": [{"name": name} for name in names]}).encode()


def source(proxy, **given):
    source = ProxySource(target="web", **given)
    source.__dict__ |= {"reach": proxy, "proxy": "web-0.shop"}
    return source


@pytest.mark.parametrize(
    ("hosts", "known"),
    [
        ((), "no service yet"),
        (("a.b",), "1 service (a.b)"),
        (tuple(f"{each}.b" for each in range(9)), "9 services (0.b, 1.b, 2.b, 3.b, 4.b, 5.b, 6.b, 7.b, …)"),
    ],
)
def test_the_services_of_an_on_demand_proxy_are_named(hosts, known, capsys):
    print_on_demand(source(Proxy(*hosts)))
    output = capsys.readouterr()
    assert output.out == ""
    first, *hints = output.err.splitlines()
    gets = "gets the config of any other service when its pod first calls that service"
    assert first == f"on demand: this proxy has {known}, and {gets}"
    assert all(hint.startswith("hint: ") for hint in hints) and "weft describe pod web-0.shop" in hints[1]


def test_nothing_is_printed_about_other_sources(capsys):
    print_on_demand(source(Proxy(on_demand=False)))
    foreseen = source(Proxy())
    foreseen.assume_calls((), all_hosts=True)
    print_on_demand(foreseen)
    print_on_demand(source(Proxy(), file="dump.json"))
    assert capsys.readouterr().err == ""
