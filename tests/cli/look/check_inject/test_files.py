"""Pod templates in files, in every place where they can occur."""

from pathlib import Path

import click
import pytest

from weft.cli.look.check_inject.files import pod_of, read, verdicts
from weft.inject.settings import InjectionSettings

TEMPLATE = "{metadata: {labels: {app: web}}, spec: {containers: []}}"


@pytest.fixture
def written(tmp_path):
    def made(text, name="web.yaml", namespace="default"):
        (tmp_path / name).write_text(text)
        return read([tmp_path], namespace)

    return made


def test_every_template_is_found_with_its_line(written):
    found = written(
        f"kind: Service\nspec: {{ports: []}}\n---\n\nkind: Deployment\nmetadata: {{name: a, namespace: shop}}\n"
        f"spec: {{template: {TEMPLATE}}}\n---\nkind: CronJob\nmetadata: {{generateName: b-}}\n"
        f"spec: {{jobTemplate: {{spec: {{template: {TEMPLATE}}}}}}}\n"
        f"---\nkind: List\nitems:\n- kind: Pod\n  metadata: {{name: c}}\n- kind: Service\n- nothing\n"
    )
    assert [(each.object, each.line, each.namespace) for each in found.templates] == [
        ("Deployment shop/a", 5, "shop"),
        ("CronJob default/b-", 9, "default"),
        ("Pod default/c", 15, "default"),
    ]
    assert found.templates[0].where.endswith("web.yaml:5")
    assert found.templates[0].pod["metadata"]["labels"] == {"app": "web"}


def test_json_is_read_too(written):
    found = written('{"kind": "Pod", "metadata": {"name": "a"}}', name="pod.json", namespace="shop")
    assert [each.object for each in found.templates] == ["Pod shop/a"]


def test_the_labels_of_a_namespace_count_wherever_it_is_written(written, tmp_path):
    (tmp_path / "z.yaml").write_text("kind: Namespace\nmetadata: {name: shop, labels: {istio.io/rev: canary}}\n")
    found = written("kind: Pod\nmetadata: {name: a, namespace: shop}\n")
    ours, canary = (verdicts(found, InjectionSettings(revision=revision))[0] for revision in ("default", "canary"))
    assert (ours.injected, canary.injected) == (False, True)
    assert ours.reason == "namespace shop belongs to revision canary, not to default"


@pytest.mark.parametrize(
    ("metadata", "has", "reason"),
    [
        ("", True, "a Workload has one by default"),
        (", annotations: {sidecar.istio.io/inject: 'false'}", False, "its annotation sidecar.istio.io/inject is false"),
        (", labels: {sidecar.istio.io/inject: 'true'}", True, "its label sidecar.istio.io/inject is true"),
    ],
)
def test_a_workload_of_one_machine_decides_for_itself(written, metadata, has, reason):
    found = written(f"kind: Workload\nmetadata: {{name: a{metadata}}}\nspec: {{command: [x]}}\n")
    (told,) = verdicts(found, InjectionSettings())
    assert (told.injected, told.reason, told.revision) == (has, reason, "-")


@pytest.mark.parametrize("text", ["kind: Service\n", "[]", "", "kind: X\nspec: {template: {a: b}}\n"])
def test_files_without_a_pod_are_an_error(written, text, capsys):
    with pytest.raises(click.exceptions.Exit):
        written(text)
    assert "no pod and no workload in these files\nhint: " in capsys.readouterr().err


def test_invalid_yaml_is_an_error_with_its_line(written, capsys):
    with pytest.raises(click.exceptions.Exit):
        written("kind: Pod\n---\na: {\n")
    assert "web.yaml:" in capsys.readouterr().err


def test_a_missing_file_is_an_error(capsys):
    with pytest.raises(click.exceptions.Exit):
        read([Path("/nowhere/at/all.yaml")], "")
    assert "cannot be read: No such file or directory\nhint: " in capsys.readouterr().err


def test_what_makes_no_pods_has_none():
    assert pod_of([]) is None
    assert pod_of({"kind": "Service", "spec": None}) is None
