import pytest
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StderrAccessLog, StdoutAccessLog

from weft.model.settings import Settings
from weft.translate.access_log import access_logs, own_answers

PLACES = {
    "/dev/stdout": ("envoy.access_loggers.stdout", StdoutAccessLog),
    "/dev/stderr": ("envoy.access_loggers.stderr", StderrAccessLog),
    "/var/log/mesh.log": ("envoy.access_loggers.file", FileAccessLog),
}


def _log(path, **written):
    (log,) = access_logs(Settings(access_log=path, **written))
    name, kind = PLACES[path]
    assert log.name == name
    return kind.FromString(log.typed_config.value)


def test_there_is_none_unless_it_is_asked_for():
    assert access_logs(Settings()) == ()


def test_the_standard_streams_are_envoys_own_and_other_paths_are_files():
    assert _log("/var/log/mesh.log").path == "/var/log/mesh.log"
    for path, (_, kind) in PLACES.items():
        (log,) = access_logs(Settings(access_log=path))
        assert log.typed_config.Is(kind.DESCRIPTOR)


@pytest.mark.parametrize("path", PLACES)
def test_text_and_json_have_defaults_and_may_be_written(path):
    assert "%RESPONSE_FLAGS%" in _log(path).log_format.text_format_source.inline_string
    assert _log(path, access_log_format="%PROTOCOL%\n").log_format.text_format_source.inline_string == "%PROTOCOL%\n"
    assert "route_name" in _log(path, access_log_encoding="JSON").log_format.json_format
    written = _log(path, access_log_encoding="JSON", access_log_format='{"code": "%RESPONSE_CODE%"}')
    assert dict(written.log_format.json_format) == {"code": "%RESPONSE_CODE%"}


def test_own_answers_are_counted_only_where_no_upstream_counts_them():
    flagged, marked = own_answers().filter.or_filter.filters
    assert list(flagged.response_flag_filter.flags) == ["FI", "NR", "NC"]
    # Else every request without the mark would be counted.
    assert marked.metadata_filter.HasField("match_if_key_not_found")
    assert not marked.metadata_filter.match_if_key_not_found.value
