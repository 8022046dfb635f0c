import json
import os
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest

from kube.following import connected
from weft.kube.client import Client
from weft.kube.config import ApiConnection, ExecPlugin, load
from weft.kube.credentials import ApiCredentials, _exec_info
from weft.kube.error import ApiError, ApiUnavailable, ConfigError

V1 = "client.authentication.k8s.io/v1"


def token_in(headers):
    return dict(headers)["Authorization"]


async def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = ApiCredentials(ApiConnection(server="https://x", token_file=str(file)))
    assert token_in(await credentials.headers()) == "Bearer one"
    file.write_text("two!\n")
    assert token_in(await credentials.headers()) == "Bearer two!"


async def test_a_projected_token_is_read_again_when_its_symlink_changes(tmp_path):
    """As kubelet writes it: a new directory, and a link to it swapped."""
    for name, text in (("..1", "one"), ("..2", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "token").symlink_to("..data/token")
    credentials = ApiCredentials(ApiConnection(server="https://x", token_file=str(tmp_path / "token")))
    assert token_in(await credentials.headers()) == "Bearer one"
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert token_in(await credentials.headers()) == "Bearer two"


async def test_a_file_that_is_missing_or_empty_for_a_moment_changes_nothing(tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    credentials = ApiCredentials(ApiConnection(server="https://x", token_file=str(file)))
    await credentials.headers()
    file.write_text("")
    assert token_in(await credentials.headers()) == "Bearer one"
    file.unlink()
    assert token_in(await credentials.headers()) == "Bearer one"


async def test_a_file_that_never_existed_is_named_in_the_error(tmp_path):
    credentials = ApiCredentials(ApiConnection(server="https://x", token_file=str(tmp_path / "token")))
    with pytest.raises(ConfigError, match="token: error: cannot be read"):
        await credentials.headers()


async def test_without_a_user_no_authorization_header_is_sent():
    assert await ApiCredentials(ApiConnection(server="https://x")).headers() == []


async def test_impersonation_reaches_the_server(api_server):
    async with connected(api_server, impersonate=(("Impersonate-User", "jane"),)) as client:
        with pytest.raises(ApiError, match='User "jane" cannot list'):
            await client.raw("GET", "/api/v1/pods")


async def test_the_tls_context_is_reused_until_something_changes(api_server, tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text(api_server.ca.read_text())
    credentials = ApiCredentials(ApiConnection(server="https://x", ca_file=str(authority)))
    first = credentials.tls()
    assert credentials.tls() is first
    authority.write_text(api_server.ca.read_text() + "\n")
    assert credentials.tls() is not first


async def test_an_invalid_new_ca_leaves_the_last_context_in_use(api_server, tmp_path, caplog):
    authority = tmp_path / "ca.crt"
    authority.write_text(api_server.ca.read_text())
    credentials = ApiCredentials(ApiConnection(server="https://x", ca_file=str(authority)))
    first = credentials.tls()
    authority.write_text("rubbish")
    assert credentials.tls() is first
    assert credentials.tls() is first
    assert caplog.text.count("not a PEM certificate") == 1


def test_an_unusable_ca_or_key_is_a_config_error():
    with pytest.raises(ConfigError, match=r"kubeconfig: error: the API server's CA is not a PEM certificate"):
        ApiCredentials(ApiConnection(server="https://x", source="kubeconfig", ca_data="rubbish")).tls()
    with pytest.raises(ConfigError, match="client certificate and its key cannot be used"):
        ApiCredentials(ApiConnection(server="https://x", client_certificate="rubbish", client_key="rubbish")).tls()


async def test_a_client_certificate_from_files_and_from_data_is_accepted(api_server):
    common = {"server": api_server.server, "ca_file": str(api_server.ca)}
    files = ApiConnection(
        **common, client_certificate_file=str(api_server.certificate), client_key_file=str(api_server.key)
    )
    data = ApiConnection(
        **common, client_certificate=api_server.certificate.read_text(), client_key=api_server.key.read_text()
    )
    for connection in (files, data):
        async with Client(connection) as client:
            assert b"PodList" in await client.raw("GET", "/api/v1/pods")


async def test_the_ca_may_be_replaced_at_run_time(api_server, tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text(api_server.certificate.read_text())
    async with connected(api_server, ca_data="", ca_file=str(authority)) as client:
        with pytest.raises(ApiUnavailable, match="not trusted"):
            await client.raw("GET", "/version")
        authority.write_text(api_server.ca.read_text())
        assert await client.raw("GET", "/version")


def plugin(tmp_path, body):
    """A program that prints what `body` makes of its count of calls."""
    program = tmp_path / "plugin"
    program.write_text(f"""#!{sys.executable}
import json, os, sys
calls = {str(tmp_path / "calls")!r}
count = int(open(calls).read()) + 1 if os.path.exists(calls) else 1
open(calls, "w").write(str(count))
def say(**status):
    print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": status}}))
{body}
""")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(api_version=V1, command=str(program), args=("login",), env=(("WHO", "me"),))


def calls(tmp_path):
    return int((tmp_path / "calls").read_text())


async def test_a_plugin_runs_once_while_its_token_is_valid(api_server, tmp_path):
    soon = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = plugin(tmp_path, f"say(token={api_server.token!r}, expirationTimestamp={soon!r})")
    async with Client(ApiConnection(server=api_server.server, ca_file=str(api_server.ca), exec_plugin=made)) as client:
        for _ in range(3):
            assert b"PodList" in await client.raw("GET", "/api/v1/pods")
    assert calls(tmp_path) == 1


async def test_a_plugins_expired_token_is_renewed(tmp_path):
    made = plugin(tmp_path, "say(token=f'number-{count}', expirationTimestamp='2020-01-01T00:00:00Z')")
    credentials = ApiCredentials(ApiConnection(server="https://x", exec_plugin=made))
    assert token_in(await credentials.headers()) == "Bearer number-1"
    assert token_in(await credentials.headers()) == "Bearer number-2"


async def test_a_plugin_runs_again_when_the_server_rejects_its_token(api_server, tmp_path):
    made = plugin(tmp_path, f"say(token='wrong' if count == 1 else {api_server.token!r})")
    async with Client(ApiConnection(server=api_server.server, ca_file=str(api_server.ca), exec_plugin=made)) as client:
        assert b"PodList" in await client.raw("GET", "/api/v1/pods")
    assert calls(tmp_path) == 2


async def test_a_plugin_whose_tokens_are_always_rejected_does_not_run_forever(api_server, tmp_path):
    made = plugin(tmp_path, "say(token=f'wrong-{count}')")
    async with Client(ApiConnection(server=api_server.server, ca_file=str(api_server.ca), exec_plugin=made)) as client:
        with pytest.raises(ApiError) as refused:
            await client.raw("GET", "/api/v1/pods")
    assert refused.value.status == 401
    assert calls(tmp_path) == 2


async def test_a_plugin_may_return_a_client_certificate(api_server, tmp_path):
    made = plugin(
        tmp_path,
        f"say(clientCertificateData=open({str(api_server.certificate)!r}).read(), "
        f"clientKeyData=open({str(api_server.key)!r}).read())",
    )
    async with Client(ApiConnection(server=api_server.server, ca_file=str(api_server.ca), exec_plugin=made)) as client:
        assert b"PodList" in await client.raw("GET", "/api/v1/pods")


async def test_a_plugin_gets_its_arguments_and_environment(tmp_path):
    made = plugin(
        tmp_path, "say(token=sys.argv[1] + os.environ['WHO'] + json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'])"
    )
    credentials = ApiCredentials(ApiConnection(server="https://x", exec_plugin=made))
    assert token_in(await credentials.headers()) == "Bearer loginmeExecCredential"


def test_a_plugin_gets_the_cluster_info_if_configured(api_server):
    connection = load(api_server.kubeconfig)
    asks = ExecPlugin(api_version=V1, command="x", provide_cluster_info=True)
    cluster = json.loads(_exec_info(asks, connection))["spec"]["cluster"]
    assert cluster["server"] == api_server.server
    assert cluster["certificate-authority-data"]
    quiet = ExecPlugin(api_version=V1, command="x")
    assert json.loads(_exec_info(quiet, connection))["spec"] == {"interactive": False}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit(3)", "failed with status 3"),
        ("print('hello')", "did not print an ExecCredential"),
        ("say()", "printed neither a token nor a client certificate"),
        (
            "print(json.dumps({'apiVersion': 'v9', 'kind': 'ExecCredential', 'status': {}}))",
            "printed v9 ExecCredential",
        ),
    ],
)
async def test_a_failing_plugin_is_named_in_the_error(tmp_path, body, says):
    credentials = ApiCredentials(ApiConnection(server="https://x", exec_plugin=plugin(tmp_path, body)))
    with pytest.raises((ConfigError, ApiUnavailable), match=f"exec plugin .*plugin: error: {says}"):
        await credentials.headers()


async def test_a_missing_plugin_is_reported_with_its_install_hint():
    missing = ExecPlugin(api_version=V1, command="no-such-plugin", install_hint="get it from the cloud")
    credentials = ApiCredentials(ApiConnection(server="https://x", exec_plugin=missing))
    with pytest.raises(ConfigError, match=r"no-such-plugin: error: cannot be started: .*hint: get it from the cloud"):
        await credentials.headers()


async def test_a_hanging_plugin_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.kube.credentials._PLUGIN_TIMEOUT", 1.0)
    body = "open(calls + '.pid', 'w').write(str(os.getpid()))\nimport time\ntime.sleep(60)"
    credentials = ApiCredentials(ApiConnection(server="https://x", exec_plugin=plugin(tmp_path, body)))
    with pytest.raises(ApiUnavailable, match="no credentials within 1 s"):
        await credentials.headers()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "calls.pid").read_text()), 0)
