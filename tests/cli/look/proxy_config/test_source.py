import json

import click
import pytest
from click.testing import CliRunner

from weft.cli.look.proxy_config.source import ProxySource, print_whole, with_source
from weft.envoy.binary import EnvoyError
from weft.envoy.dump import CLUSTERS


def source(**given):
    return ProxySource(
        **{
            "target": None,
            "namespace": "",
            "file": None,
            "mesh": None,
            "kubernetes": False,
            "kubeconfig": None,
            "context": None,
            **given,
        }
    )


@pytest.mark.parametrize("given", [{}, {"target": "web", "file": "dump.json"}])
def test_either_a_pod_or_a_file_is_read(given, capsys):
    with pytest.raises(click.exceptions.Exit) as refused:
        source(**given).check()
    assert refused.value.exit_code == 2
    assert "--file DUMP" in capsys.readouterr().err


def test_a_missing_file_is_an_error_with_its_name(capsys):
    with pytest.raises(click.exceptions.Exit):
        source(file="/nowhere/dump.json").everything()
    assert "/nowhere/dump.json cannot be read: No such file" in capsys.readouterr().err


def test_a_file_is_read_without_any_mesh(tmp_path):
    file = tmp_path / "dump.json"
    document = {"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump"}]}
    file.write_text(json.dumps(document))
    assert source(file=str(file)).everything().document == document
    assert source(file=str(file)).config(CLUSTERS).document == document


@pytest.mark.parametrize("said", ["{}", '{"configs": []}', '{"cluster_statuses": []}', '{"configs": [{"@type": "x"}]}'])
def test_another_file_is_not_taken_for_a_proxy_that_has_nothing(tmp_path, said):
    file = tmp_path / "dump.json"
    file.write_text(said)
    with pytest.raises(EnvoyError, match=r"the dump has no ClustersConfigDump .*curl"):
        source(file=str(file)).config(CLUSTERS)
    if '"x"' not in said:
        with pytest.raises(EnvoyError, match="the dump has no BootstrapConfigDump"):
            source(file=str(file)).everything()


def test_a_command_has_the_flags_of_a_source_and_its_own():
    got = []

    @click.command()
    @with_source
    @click.option("--port", type=int)
    def command(source, port):
        """A command for the test."""
        got.append((source.file, port))

    assert CliRunner().invoke(command, ["--file", "x", "--port", "4"]).exit_code == 0
    assert got == [("x", 4)] and command.help == "A command for the test."
    assert [each.name for each in command.params][:3] == ["target", "namespace", "file"]
    assert command.params[-1].name == "port"


def test_whole_dumps_are_printed_as_json_or_yaml(capsys):
    print_whole([{"name": "ä"}], "json")
    assert json.loads(capsys.readouterr().out) == [{"name": "ä"}]
    print_whole([{"name": "ä"}], "yaml")
    assert capsys.readouterr().out == "- name: ä\n"


def test_the_config_after_a_first_call_comes_from_the_control_plane():
    class Reach:
        def ask(self, page, query):
            asked.append((page, json.loads(query["question"])))
            return b'{"configs": [{"@type": "x.ClustersConfigDump"}]}'

    asked = []
    assumed = source(target="web")
    assumed.__dict__ |= {"reach": Reach(), "proxy": "web-0.shop"}
    assumed.assume_calls(("cart",), all_hosts=False)
    assert assumed.config(CLUSTERS).sections(CLUSTERS) and assumed.clusters().document["configs"]
    assert asked == [("first_call", {"proxy": "web-0.shop", "hosts": ["cart"]})]


@pytest.mark.parametrize(
    ("given", "hosts"), [({"target": "web"}, ("cart",)), ({"file": "dump.json"}, ()), ({"file": "-"}, ())]
)
def test_first_calls_need_a_pod_and_one_of_both_options(given, hosts, capsys):
    with pytest.raises(click.exceptions.Exit) as refused:
        source(**given).assume_calls(hosts, all_hosts=True)
    assert refused.value.exit_code == 2 and "--all" in capsys.readouterr().err
