import json

import pytest

from api.reading import told, value
from api.test_mesh_config import config
from weft.model.access_log import Encoding, FileLog


def provider(written, name="mine"):
    return config(f"extensionProviders:\n- name: {name}\n  {written}\n")


def test_the_mesh_has_one_file():
    assert value(config("accessLogFile: /dev/stderr\n")).logs == (FileLog("/dev/stderr"),)
    written = value(config("accessLogFile: /dev/stdout\naccessLogFormat: '%PROTOCOL%'\n")).logs
    assert written == (FileLog(format="%PROTOCOL%\n"),), "a line ends"
    labels = value(
        config('accessLogFile: /a\naccessLogEncoding: JSON\naccessLogFormat: \'{"a": "%PROTOCOL%"}\'\n')
    ).logs
    assert labels == (FileLog("/a", Encoding.JSON, '{"a": "%PROTOCOL%"}'),)


def test_a_provider_writes_text_or_labels_to_a_file():
    assert value(provider("envoyFileAccessLog: {}")).logs_of("mine") == (FileLog(),)
    (text,) = value(provider("envoyFileAccessLog: {path: /a, logFormat: {text: '%PROTOCOL%'}}")).logs_of("mine")
    assert text == FileLog("/a", Encoding.TEXT, "%PROTOCOL%\n")
    labels = "{code: '%RESPONSE_CODE%', of: {peer: ['%DOWNSTREAM_PEER_URI_SAN%', 1, true, null]}}"
    written = provider(f"envoyFileAccessLog: {{logFormat: {{labels: {labels}}}, omitEmptyValues: true}}")
    (nested,) = value(written).logs_of("mine")
    assert (nested.encoding, nested.omit_empty) == (Encoding.JSON, True)
    assert json.loads(nested.format)["of"] == {"peer": ["%DOWNSTREAM_PEER_URI_SAN%", 1, True, None]}
    (default,) = value(provider("envoyFileAccessLog: {logFormat: {labels: {}}}")).logs_of("mine")
    assert default == FileLog(encoding=Encoding.JSON)


def test_a_provider_alone_writes_nothing_but_a_default_one_does():
    assert value(provider("envoyFileAccessLog: {}")).logs == ()
    chosen = "defaultProviders: {accessLogging: [mine, ENVOY]}\naccessLogFile: /dev/stderr\n"
    found = value(provider("envoyFileAccessLog: {path: /a}") + f"    {chosen.replace(chr(10), chr(10) + '    ')}")
    assert found.logs == (FileLog("/a"), FileLog()), "the file of the mesh gives way"
    assert found.default_log_providers == ("mine", "ENVOY")


def test_the_built_in_provider_has_the_mesh_wide_format():
    found = value(config("accessLogEncoding: JSON\n"))
    assert found.logs_of("envoy") == (FileLog(encoding=Encoding.JSON),)
    own = value(provider("envoyFileAccessLog: {path: /dev/stderr}", name="envoy"))
    assert own.logs_of("envoy") == (FileLog("/dev/stderr"),)


@pytest.mark.parametrize("sort", ["envoyOtelAls", "envoyHttpAls", "envoyTcpAls"])
def test_other_providers_get_a_warning_that_they_are_not_supported(sort):
    text = provider(f"{sort}: {{service: collector.shop.svc.cluster.local, port: 4317}}")
    assert told(text) == [f"8 warning: `{sort}` is ignored by this version of weft"]
    assert told(text + "    defaultProviders: {accessLogging: [mine]}\n")[1] == (
        "9 warning: the provider `mine` is not supported: this version of weft writes access logs only to files "
        "(use an `envoyFileAccessLog`, and collect the logs from its file)"
    )
    assert value(text).logs_of("mine") == ()


def test_a_format_that_envoy_rejects_is_an_error_at_its_line():
    assert told(config("accessLogFormat: '%RESPONSE_CODES%'\n")) == [
        "6 Envoy rejects this log format: `%RESPONSE_CODES%`: Envoy has no command RESPONSE_CODES "
        "(did you mean `RESPONSE_CODE`?)"
    ]
    assert told(provider("envoyFileAccessLog: {logFormat: {text: '100%'}}"))[0].startswith(
        "8 Envoy rejects this log format: `%` is not a command"
    )
    assert told(provider("envoyFileAccessLog: {logFormat: {labels: {a: {b: '%REQ%'}}}}")) == [
        "8 Envoy rejects the log format of `b`: `%REQ%`: REQ needs a parameter in parentheses"
    ]


def test_labels_that_are_no_json_are_errors():
    assert told(config("accessLogEncoding: JSON\naccessLogFormat: '{'\n"))[0].startswith(
        "7 `accessLogFormat` is not a JSON object: "
    )
    assert told(config("accessLogEncoding: JSON\naccessLogFormat: '[]'\n"))[0].startswith(
        "7 `accessLogFormat` is not a JSON object"
    )
    assert told(provider("envoyFileAccessLog: {logFormat: {labels: [a]}}"))[0].startswith(
        "8 `labels` must be a mapping"
    )
    assert told(config("accessLogEncoding: JSON\naccessLogFormat: '{\"a\": 1e999}'\n")) == [
        "7 Envoy rejects the log format of `a`: the number (very large) is not a JSON value (put the value in quotes)"
    ]
    deep = "{a: " * 30 + "x" + "}" * 30
    assert "deeper than" in told(provider(f"envoyFileAccessLog: {{logFormat: {{labels: {deep}}}}}"))[0]
    assert told(provider("envoyFileAccessLog: {logFormat: {}}"))[0].startswith("8 `logFormat` must have `text` or")


def test_an_unknown_default_provider_gets_a_suggestion():
    assert told(config("defaultProviders: {accessLogging: [envoi]}\n")) == [
        "6 warning: there is no access log provider `envoi` (did you mean `envoy`?)"
    ]
