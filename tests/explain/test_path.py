import pytest
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from weft.explain.path import normalized


def _manager(**more):
    manager = HttpConnectionManager(**more)
    manager.normalize_path.value = True
    return manager


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("/a/../b", "/b"),
        ("/a/./b/..", "/a/"),
        ("/../../a", "/a"),
        ("//a", "//a"),
        ("/a\\b", "/a/b"),
        ("/%41%2e%7e%2F", "/A.~%2F"),
        ("/a/%2e%2E/b", "/b"),
        ('/"<>^`{|}', "/%22%3C%3E%5E%60%7B%7C%7D"),
        ("/a/..;x=1/b", "/b"),
        ("/a/.;x\\y/b", "/a/b"),
        ("/a/%2e%2e;x/b", "/a/..;x/b"),
        ("/a/..%3Bx/b", "/a/..%3Bx/b"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/%zz%", "/%zz%"),
        ("/%%41%41", "/%25AA"),
        ("/%%411", "/%25A1"),
        ("/%4%31", "/%2541"),
        ("/%%41z%41", "/%AzA"),
        ("/%%2F%41", "/%%2FA"),
        ("/a/..?x=/../%41", "/?x=/../%41"),
    ],
)
def test_paths_as_envoy_normalizes_them(written, seen):
    assert normalized(_manager(), written) == seen


@pytest.mark.parametrize("written", ["/a#b", "/a%00"])
def test_paths_that_are_refused(written):
    assert normalized(_manager(), written) is None


def test_slashes_are_merged_and_decoded_where_configured():
    assert normalized(_manager(merge_slashes=True), "//a///b/?x=//") == "/a/b/?x=//"
    decoding = _manager(path_with_escaped_slashes_action=HttpConnectionManager.UNESCAPE_AND_FORWARD)
    assert normalized(decoding, "/a%2Fb%5Cc?%2F") == "/a/b/c?%2F"
    refusing = _manager(path_with_escaped_slashes_action=HttpConnectionManager.REJECT_REQUEST)
    assert normalized(refusing, "/a%2Fb") is None and normalized(refusing, "/a") == "/a"


def test_a_path_is_unchanged_without_normalization():
    assert normalized(HttpConnectionManager(), "/a/../%41") == "/a/../%41"
