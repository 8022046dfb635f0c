import click
import pytest

from weft.cli.reach.label_selector import requirements

LABELS = {"app": "web", "version": "v2"}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("app=web", True),
        ("app==web,version=v2", True),
        ("app=web,version=v1", False),
        ("version!=v1", True),
        ("tier!=front", True),  # also matches pods without the label
        ("app", True),
        ("!app", False),
        ("!tier", True),
        ("version in (v1, v2),app=web", True),
        ("version notin (v1,v2)", False),
    ],
)
def test_labels_are_selected_as_kubectl_does(text, fits):
    assert all(each.fits(LABELS) for each in requirements(text)) is fits


@pytest.mark.parametrize("text", ["", "app=web,", "a=b=c", "app in v1", "=web", "two words"])
def test_what_is_no_selector_is_a_usage_error(text, capsys):
    with pytest.raises(click.exceptions.Exit) as ended:
        requirements(text)
    assert ended.value.exit_code == 2 and "for example: -l app=web" in capsys.readouterr().err
