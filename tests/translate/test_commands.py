import pytest

from golden.render import CASES, render
from weft.api.commands import BARE, WITH_PARAMETERS
from weft.envoy.validate import validate
from weft.translate.commands import harmless


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("plain", "plain"),
        ("a%%b", "a%%b"),
        ("%PROTOCOL%", "%PROTOCOL%"),
        ("to %REQ(x-user?x-name):10% now", "to %REQ(x-user?x-name):10% now"),
        ("%START_TIME(%Y/%m)%", "%START_TIME(%Y/%m)%"),
        ("%FOO%", "%%FOO%%"),
        ("%REQ%", "%%REQ%%"),
        ("%REQ()%", "%%REQ()%%"),
        ("50% off", "50%% off"),
        ("%FOO% and %HOSTNAME%", "%%FOO%% and %HOSTNAME%"),
    ],
)
def test_an_unknown_command_is_text(written, sent):
    assert harmless(written) == sent


async def test_envoy_accepts_every_command_that_passes():
    _, everything = render(CASES / "http-without-sidecar")
    resources = everything["frontend"]
    parameters = {
        "DYNAMIC_METADATA": "a:b",
        "CLUSTER_METADATA": "a:b",
        "UPSTREAM_METADATA": "a:b",
        "GRPC_STATUS": "CAMEL_STRING",
    }
    parameters |= dict.fromkeys((name for name in WITH_PARAMETERS if name.endswith("WITHOUT_PORT")), "24")
    commands = [*BARE, *(f"{name}({parameters.get(name, 'x')})" for name in WITH_PARAMETERS), "FOO", "REQ"]
    route = resources.routes[0].virtual_hosts[0].routes[0]
    for number, command in enumerate(sorted(commands)):
        header = route.request_headers_to_add.add().header
        header.key, header.value = f"x-{number}", harmless(f"%{command}%")
    problems = await validate(
        listeners=resources.listeners,
        clusters=resources.clusters,
        routes=resources.routes,
        endpoints=resources.endpoints,
    )
    assert problems == []
