from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog

from weft.model.settings import Settings
from weft.translate.access_log import access_logs, own_answers


def _log(**written):
    (log,) = access_logs(Settings(access_log="/dev/stdout", **written))
    return FileAccessLog.FromString(log.typed_config.value)


def test_there_is_none_unless_it_is_asked_for():
    assert access_logs(Settings()) == ()


def test_text_and_json_have_defaults_and_may_be_written():
    assert "%RESPONSE_FLAGS%" in _log().log_format.text_format_source.inline_string
    assert _log(access_log_format="%PROTOCOL%\n").log_format.text_format_source.inline_string == "%PROTOCOL%\n"
    assert "route_name" in _log(access_log_encoding="JSON").log_format.json_format
    written = _log(access_log_encoding="JSON", access_log_format='{"code": "%RESPONSE_CODE%"}')
    assert dict(written.log_format.json_format) == {"code": "%RESPONSE_CODE%"}


def test_own_answers_are_counted_only_where_no_upstream_counts_them():
    flagged, marked = own_answers().filter.or_filter.filters
    assert list(flagged.response_flag_filter.flags) == ["FI", "NR", "NC"]
    # Else every request without the mark would be counted.
    assert marked.metadata_filter.HasField("match_if_key_not_found")
    assert not marked.metadata_filter.match_if_key_not_found.value
