import json

import pytest
import yaml
from click.testing import CliRunner

from envoy_dumps import ADMIN, cluster
from weft.cli.look.proxy_config.tables import ALIASES
from weft.cli.main import app

ENDPOINT = {"endpoint": {"address": {"socket_address": {"address": "10.0.0.2", "port_value": 80}}}}
ASSIGNMENT = {"cluster_name": "outbound|80|v1|a.b", "endpoints": [{"lb_endpoints": [ENDPOINT]}]}
SECTIONS = {
    "ClustersConfigDump": {"static_clusters": [cluster("outbound|80|v1|a.b", type="EDS"), cluster("xds")]},
    "ListenersConfigDump": {"static_listeners": [{"listener": {"name": "l"}}]},
    "RoutesConfigDump": {"static_route_configs": [{"route_config": {"name": "80", "virtual_hosts": []}}]},
    "SecretsConfigDump": {
        "dynamic_active_secrets": [
            {"name": "default", "secret": {"tls_certificate": {"private_key": {"inline_string": "secret!"}}}}
        ]
    },
    "BootstrapConfigDump": {"bootstrap": {"node": {"metadata": {"ISTIO_VERSION": "1.2.3"}}}},
    "EndpointsConfigDump": {"static_endpoint_configs": [{"endpoint_config": ASSIGNMENT}]},
    "EcdsConfigDump": {},
}


@pytest.fixture
def dump(tmp_path):
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"configs": [{"@type": f"{ADMIN}.{kind}", **body} for kind, body in SECTIONS.items()]}))
    return file


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="weft", **options)


@pytest.mark.parametrize(("name", "aliases"), ALIASES.items())
def test_each_command_has_all_of_istioctls_names(name, aliases):
    for each in (name, *aliases):
        for group in ("proxy-config", "pc"):
            result = run(group, each, "--help")
            assert result.exit_code == 0, result.output
            assert f"Example: weft proxy-config {name}" in result.output


def test_help_lists_each_command_once():
    listing = run("pc", "--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listing.splitlines() if not line.startswith("    ")] == list(ALIASES)


def test_a_mistyped_command_is_a_usage_error():
    result = run("pc", "clustres")
    assert result.exit_code == 2 and "clustres" in result.stderr


def test_completion_knows_the_commands_of_the_group():
    environment = {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": "weft pc cl", "COMP_CWORD": "2"}
    assert "clusters" in CliRunner().invoke(app, [], prog_name="weft", env=environment).stdout


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("listeners", "ADDRESSES PORT MATCH DESTINATION"),
        ("routes", "NAME     VHOST NAME     DOMAINS     MATCH     VIRTUAL SERVICE"),
        ("clusters", "SERVICE FQDN     PORT     SUBSET     DIRECTION     TYPE       DESTINATION RULE"),
        ("endpoints", "NAME                     STATUS      LOCALITY     CLUSTER"),
        ("ecds", "ECDS NAME     TYPE"),
        ("bootstrap -o short", "Istio Version: 1.2.3"),
        ("all", "Istio Version: 1.2.3"),
    ],
)
def test_tables_of_a_file_begin_with_istioctls_headings(dump, command, first):
    result = run("pc", *command.split(), "--file", dump)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == first


def test_filters_reach_the_reader(dump):
    result = run("pc", "c", "--file", dump, "--subset", "v1", "-o", "json")
    assert [each["name"] for each in json.loads(result.stdout)] == ["outbound|80|v1|a.b"]
    assert yaml.safe_load(run("pc", "c", "--file", dump, "--fqdn", "xds", "-o", "yaml").stdout)[0]["name"] == "xds"


def test_endpoints_of_a_whole_dump_are_those_that_the_proxy_was_sent(dump):
    assert "endpoint/10.0.0.2:80" in run("pc", "ep", "--file", dump).stdout
    assert json.loads(run("pc", "ep", "--file", dump, "--port", "80", "-o", "json").stdout) == [ASSIGNMENT]
    none = run("pc", "ep", "--file", dump, "--port", "81", "-o", "json")
    assert (none.stdout, none.stderr) == ("[]\n", "the proxy has no matching endpoint\n")


def test_an_empty_result_is_reported_on_stderr(dump):
    result = run("pc", "c", "--file", dump, "--port", "1", "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert result.stderr == "the proxy has no matching cluster\n"


@pytest.mark.parametrize("command", ["secret", "secret -o json", "secret -o yaml", "all", "all -o json", "all -o yaml"])
def test_no_command_shows_a_key(dump, command):
    result = run("pc", *command.split(), "--file", dump)
    assert result.exit_code == 0, result.output
    assert "default" in result.stdout and "secret!" not in result.output


def test_headings_are_printed_if_requested(dump):
    shown = run("pc", "all", "--file", dump, "--with-headers").stdout
    titles = [line.split()[1] for line in shown.splitlines() if line.startswith("------")]
    assert titles == ["BOOTSTRAP", "CLUSTER", "LISTENER", "ROUTE", "SECRET", "ENDPOINTS"]


def test_standard_input_is_a_file_too(dump):
    assert "xds" in run("pc", "c", "--file", "-", input=dump.read_text()).stdout


def test_a_file_that_is_not_a_dump_is_an_error(tmp_path):
    (tmp_path / "x").write_text("no")
    result = run("pc", "clusters", "--file", tmp_path / "x")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'x'}: the dump is not JSON") and "hint: " in result.stderr


@pytest.mark.parametrize("command", ["listeners", "routes", "clusters", "endpoints", "secret"])
def test_a_dump_has_no_provenance_and_that_is_a_usage_error(dump, command):
    result = run("pc", command, "--file", dump, "--why")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a dump contains Envoy's config, but not the objects behind it" in result.stderr
    assert "hint: leave out --why, or name a pod" in result.stderr
