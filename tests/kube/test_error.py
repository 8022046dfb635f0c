import pytest

from weft.kube.error import ApiError, ApiUnavailable, ConfigError


def test_a_config_error_names_the_file_and_has_a_hint():
    error = ConfigError("is not YAML", "kubectl config view tells more", file="/home/me/.kube/config")
    assert str(error) == "/home/me/.kube/config: error: is not YAML (hint: kubectl config view tells more)"
    assert not error.retryable


@pytest.mark.parametrize(
    ("status", "retryable"), [(400, False), (403, False), (409, False), (429, True), (500, True), (503, True)]
)
def test_only_temporary_errors_are_retryable(status, retryable):
    assert ApiError(status).retryable is retryable


def test_no_answer_is_retryable():
    assert ApiUnavailable("nobody").retryable


def test_an_api_error_has_the_request_and_the_servers_message():
    error = ApiError(403, "Forbidden", "pods is forbidden", request="GET /api/v1/pods")
    assert str(error).startswith("GET /api/v1/pods: error: 403 Forbidden: pods is forbidden (hint: ")
    assert error.forbidden


def test_an_existing_name_and_a_lost_race_are_different_conflicts():
    assert ApiError(409, "AlreadyExists").already_exists
    assert ApiError(409, "Conflict").conflict
    assert not ApiError(409, "Conflict").already_exists


def test_an_expired_version_is_recognized_by_status_and_by_reason():
    assert ApiError(410, "Gone").expired
    assert ApiError(0, "Expired").expired
    assert ApiError(404, "NotFound").not_found
