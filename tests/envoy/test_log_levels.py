import pytest

from weft.envoy.binary import EnvoyError
from weft.envoy.log_levels import check, parse, read, started_with

SAID = b"active loggers:\n  admin: warning\n  rbac: debug\n"


@pytest.mark.parametrize(
    ("typed", "pairs"),
    [
        ("debug", [("level", "debug")]),
        ("rbac:debug", [("rbac", "debug")]),
        ("rbac=warn", [("rbac", "warning")]),
        ("rbac:debug,info", [("level", "info"), ("rbac", "debug")]),
        ("filters::rbac:debug", [("rbac", "debug")]),
        ("none", [("level", "off")]),
    ],
)
def test_reads_what_istioctls_users_type_and_sets_all_before_one(typed, pairs):
    assert parse(typed) == pairs


@pytest.mark.parametrize("typed", ["rbac", "rbac:loud", "debug,", ":"])
def test_an_unknown_level_is_an_error_with_an_example(typed):
    with pytest.raises(EnvoyError) as refused:
        parse(typed)
    assert "--level rbac:debug,info" in refused.value.problem.hint


def test_a_mistyped_logger_is_refused():
    check([("level", "info"), ("rbac", "debug")], read(SAID))
    with pytest.raises(EnvoyError) as refused:
        check([("rbca", "debug")], read(SAID))
    assert "did you mean `rbac`?" in refused.value.problem.hint


def test_reads_the_levels_that_envoy_reports():
    assert read(SAID) == {"admin": "warning", "rbac": "debug"}


def test_knows_what_an_envoy_was_started_with():
    options = {"log_level": "warning", "component_log_level": "misc:error,rbac:info"}
    assert started_with({"command_line_options": options}) == [
        ("level", "warning"),
        ("misc", "error"),
        ("rbac", "info"),
    ]
    assert started_with({}) == [("level", "warning")]
