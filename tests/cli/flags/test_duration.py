from datetime import timedelta

import click
import pytest

from weft.cli.flags.duration import duration_of, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1.5s", 1.5), ("10m", 600), ("24h", 86_400), ("7d", 604_800), ("250ms", 0.25)]
)
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "10", "-1s", "1 s", "1e3s", "٣s", "9" * 30 + "s", "9999999999999999d"])
def test_any_other_text_is_an_error_with_a_message(text):
    with pytest.raises(ValueError, match=r"is not a duration|too long a duration"):
        parse_duration(text)


def test_an_invalid_duration_ends_the_command_with_an_example(capsys):
    assert duration_of("10m", "--wait 10s") == timedelta(minutes=10)
    with pytest.raises(click.exceptions.Exit) as ended:
        duration_of("soon", "--wait 10s")
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err.endswith("hint: for example: --wait 10s\n")
