"""Paths of a command line as meshes. Most of this is tested through `weft validate` and `weft analyze`."""

import click
import pytest

from weft.cli.read.mesh_files import FileAdmission, meshes_in
from weft.model.service import Service, ServicePort

OBJECT = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n"


def test_a_directory_is_a_mesh_of_its_own_and_files_are_together_one(tmp_path):
    (tmp_path / "mesh").mkdir()
    for name in ("mesh/a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text(OBJECT % name[-1])
    found = list(meshes_in([tmp_path / "b.yaml", tmp_path / "mesh", tmp_path / "c.yaml"]))
    assert [([each.key.name for each in documents], whole) for documents, _, whole in found] == [
        (["a"], True),
        (["b", "c"], False),
    ]
    assert found[1][0][0].directory == str(tmp_path)


def test_what_is_not_there_ends_the_command(tmp_path, capsys):
    with pytest.raises(click.exceptions.Exit):
        list(meshes_in([tmp_path / "no.yaml"]))
    assert "does not exist" in capsys.readouterr().err


def test_services_get_an_address_as_in_a_running_mesh():
    service = Service("web.shop.svc.cluster.local", "web", "shop", (ServicePort(80),))
    assert FileAdmission()(service).addresses
