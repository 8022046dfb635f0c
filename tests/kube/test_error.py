import pytest

from weft.kube.error import ApiError, ApiUnavailable, ConfigError


def test_a_wrong_configuration_says_which_file_and_what_to_do():
    error = ConfigError("is not YAML", "kubectl config view tells more", file="/home/me/.kube/config")
    assert str(error) == "/home/me/.kube/config: error: is not YAML (hint: kubectl config view tells more)"
    assert not error.retryable


@pytest.mark.parametrize(
    ("status", "retryable"), [(400, False), (403, False), (409, False), (429, True), (500, True), (503, True)]
)
def test_only_what_may_pass_by_itself_is_worth_another_try(status, retryable):
    assert ApiError(status).retryable is retryable


def test_nobody_answering_is_worth_another_try():
    assert ApiUnavailable("nobody").retryable


def test_a_refusal_says_what_was_asked_and_what_the_server_said():
    error = ApiError(403, "Forbidden", "pods is forbidden", request="GET /api/v1/pods")
    assert str(error).startswith("GET /api/v1/pods: error: 403 Forbidden: pods is forbidden (hint: ")
    assert error.forbidden


def test_a_taken_name_is_told_apart_from_a_lost_race():
    assert ApiError(409, "AlreadyExists").already_exists
    assert ApiError(409, "Conflict").conflict
    assert not ApiError(409, "Conflict").already_exists


def test_an_expired_version_is_known_by_status_and_by_reason():
    assert ApiError(410, "Gone").expired
    assert ApiError(0, "Expired").expired
    assert ApiError(404, "NotFound").not_found
