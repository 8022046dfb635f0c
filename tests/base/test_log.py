import logging
import re

from weft.base.log import configure


def test_logs_to_standard_error_only(capsys, monkeypatch):
    weft = logging.getLogger("weft")
    for attribute, value in {"handlers": [], "propagate": True, "level": logging.NOTSET}.items():
        monkeypatch.setattr(weft, attribute, value)  # restored after the test: other tests read logs
    configure("info")
    logging.getLogger("weft.somewhere").info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d I weft\.somewhere: hello\n", captured.err)
