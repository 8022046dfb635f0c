import io

import pytest

from weft.cli.print.demo_steps import is_one_place, steps_table
from weft.cli.print.output import print_table
from weft.demo.check import DemoStep


@pytest.mark.parametrize("shared", [True, False])
def test_a_table_is_printed_only_where_the_steps_are_not_seen_already(tmp_path, shared):
    out, err = (tmp_path / "out").open("w"), (tmp_path / "err").open("w")
    assert is_one_place(out, out if shared else err) is shared


def test_streams_without_a_file_descriptor_are_not_the_same_place():
    assert not is_one_place(io.StringIO(), io.StringIO())


def test_a_table_has_a_row_for_each_step(capsys):
    steps = [
        DemoStep("the sun shines", ok=True, saw="it does", seconds=1.25),
        DemoStep("it is warm", False, "0 °C", 2.0),
    ]
    print_table(steps_table(steps))
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["ok", "the", "sun", "shines", "1.2", "it", "does"]
    assert second.startswith("FAILED") and second.endswith("0 °C")
