"""The objects of an installation, printed without a cluster."""

import yaml

from weft.install.manifests import manifests
from weft.install.values import Values, values_of


def test_generate_prints_every_object_of_the_values(weft):
    done = weft("manifest", "generate", "--set", "control.replicas=4", "--revision", "a")
    expected = [each["metadata"]["name"] for each in manifests(values_of({"revision": "a"}))]
    found = list(yaml.safe_load_all(done.stdout))
    assert [each["metadata"]["name"] for each in found] == expected
    assert next(each for each in found if each["kind"] == "Deployment")["spec"]["replicas"] == 4


def test_values_prints_what_can_be_given_again(weft, tmp_path):
    done = weft("manifest", "values", "--set", "control.replicas=4")
    assert values_of(yaml.safe_load(done.stdout)).control.replicas == 4
    file = tmp_path / "values.yaml"
    file.write_text(done.stdout)
    assert weft("manifest", "values", "-f", file).stdout == done.stdout
    assert values_of(yaml.safe_load(weft("manifest", "values").stdout)) == Values()


def test_an_unknown_value_ends_with_a_hint(weft):
    done = weft("manifest", "generate", "--set", "control.replica=4")
    assert done.returncode == 1
    assert "there is no value `control.replica`" in done.stderr
    assert "hint: did you mean `replicas`?" in done.stderr
    assert not done.stdout
