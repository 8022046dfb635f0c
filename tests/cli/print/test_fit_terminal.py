import io

from rich.console import Console
from rich.text import Text

from weft.cli.print.fit_terminal import FirstThatFits, Fitted, shortened, stacked


def rendered(renderable, width=20):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue().splitlines()


def test_rows_too_wide_for_a_table_are_blocks_of_lines_without_what_is_empty():
    names, rows = ["POD", "AGE", "MESSAGE"], [["a-0", "3s", ""], ["b-0", Text("4s"), "[not] markup"]]
    assert [line.rstrip() for line in rendered(stacked(names, rows), width=40)] == [
        "a-0",
        "  AGE  3s",
        "",
        "b-0",
        "  AGE      4s",
        "  MESSAGE  [not] markup",
    ]


def test_the_fullest_form_that_fits_is_taken_and_else_the_last():
    forms = [lambda: Text("x" * 30), lambda: Text("y" * 20), lambda: Text("z")]
    assert rendered(FirstThatFits(*forms)) == ["y" * 20]
    assert rendered(FirstThatFits(*forms[:1])) == ["x" * 20, "x" * 10]


def test_rows_are_cut_where_there_are_most_until_it_fits():
    drawn = []

    def draw(rows):
        drawn.append(tuple(rows))
        return Text("\n".join(["line"] * sum(rows)))

    assert len(rendered(Fitted(draw, most=(10, 4), least=(3, 3), height=8))) <= 8
    assert drawn[0] == (10, 4)
    assert drawn[-1] == (3, 4)


def test_what_cannot_fit_is_drawn_with_the_least():
    lines = rendered(Fitted(lambda rows: Text("\n".join(["line"] * sum(rows))), most=(9, 1), least=(3, 3), height=1))
    assert len(lines) == 4


def test_a_shortened_name_keeps_both_ends():
    assert shortened("payments-v1", 8) == "pay…s-v1"
    assert len(shortened("payments-v1", 9)) == 9
    assert shortened("payments-v1", 11) == shortened("payments-v1", None) == "payments-v1"
