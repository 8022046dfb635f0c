import logging

from weft.base.log import configure


def test_writes_words_to_standard_error_only(capsys):
    configure("info")
    logging.getLogger("weft.somewhere").info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.rstrip().endswith("I weft.somewhere: hello")
