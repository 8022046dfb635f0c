from tools import h2spec

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="6.7. PING" package="http2/6.7" id="6.7" tests="2" skipped="0" failures="1" errors="0">
    <testcase package="http2/6.7" classname="Sends a PING frame" time="0.0004"></testcase>
    <testcase package="http2/6.7" classname="Sends &#34;ACK&#34;" time="2.0">
      <failure>PING Frame (opaque_data:h2spec\x00<\x00)
        Timeout</failure>
    </testcase>
  </testsuite>
</testsuites>"""


def test_a_report_has_cases_with_their_numbers_and_the_reasons_of_failures():
    assert h2spec.read_report(REPORT) == {
        ("http2/6.7/1", "Sends a PING frame"): "",
        ("http2/6.7/2", 'Sends "ACK"'): "PING Frame (opaque_data:h2spec\x00<\x00) Timeout",
    }


def test_one_that_is_there_is_not_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    h2spec.path().parent.mkdir(parents=True)
    h2spec.path().touch()
    told = []
    h2spec.ensure(tell=told.append)
    assert told == []
