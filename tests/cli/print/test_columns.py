from weft.cli.print.columns import lines


def test_columns_stand_below_each_other_and_nothing_trails():
    assert lines(("A", "LONG B", "C"), [("aaa", "b", ""), ("", "b", "c")]) == [
        "A       LONG B     C",
        "aaa     b",
        "        b          c",
    ]
    assert lines(("A", "B"), [], gap=1) == ["A B"]
