import json
from pathlib import Path

import click
import pytest

from cli.files.test_test import SERVICE, TESTS
from weft.cli.read.trial_source import base_of, check, in_force, laid_over, read, stage_of, staged


def test_tests_are_separated_from_the_mesh(tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "tests.yaml").write_text(TESTS)
    found = read([tmp_path])
    assert {each.key.kind for each in found.documents} == {"Service", "Workload"}
    assert [str(each) for each in found.cases] == ["web GET http://web/"]
    assert found.problems == []
    assert stage_of(found.documents).find("web") == "web-0.shop"


def test_what_is_wrong_ends_the_command(tmp_path):
    (tmp_path / "tests.yaml").write_text(TESTS.replace("expect: allowed", "expect: maybe"))
    with pytest.raises(click.exceptions.Exit):
        check(read([tmp_path]).problems)


def test_a_change_replaces_the_object_of_the_same_name(tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    base = read([tmp_path]).documents
    assert laid_over(base, base) == base


def test_a_directory_can_be_the_base(tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE + "---" + TESTS)
    found = base_of(Path(tmp_path), None, kubernetes=False, kubeconfig=None, context=None, system="istio-system")
    assert (len(found.documents), len(found.cases), found.running) == (2, 1, None)


def test_a_mesh_runs_on_what_was_good_before(tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE.replace("port: 80,", "port: eighty,"))
    good = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"ports": [{"name": "http", "port": 80}]},
        "origin": "web.yaml:2: Service shop/web",
    }
    documents, problems = in_force(read([tmp_path]).documents, json.dumps([good]).encode())
    (service,) = [each for each in documents if each.key.kind == "Service"]
    assert service.body["spec"]["ports"][0]["port"] == 80
    assert [each.where.object for each in problems] == ["Service shop/web"]
    _, refused = staged(documents)
    assert refused == ()
