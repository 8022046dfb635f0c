from datetime import timedelta

from google.protobuf.struct_pb2 import Struct

from weft.translate.protos import duration, extension, from_control_plane, packed, socket_address


def test_equal_content_packs_to_equal_bytes():
    one, other = Struct(), Struct()
    one.update({"a": 1, "b": 2, "c": 3})
    other.update({"c": 3, "b": 2, "a": 1})
    assert packed(one) == packed(other)
    assert extension("x", one).typed_config == packed(other)


def test_durations_keep_their_fraction():
    assert (duration(timedelta(milliseconds=250)).seconds, duration(timedelta(milliseconds=250)).nanos) == (
        0,
        250_000_000,
    )


def test_an_address_may_be_a_unix_socket():
    assert socket_address("unix:///run/app.sock", 0).pipe.path == "/run/app.sock"
    assert socket_address("fd00::1", 80).socket_address.port_value == 80


def test_the_initial_fetch_has_no_timeout():
    source = from_control_plane()
    assert source.HasField("ads") and source.HasField("initial_fetch_timeout")
    assert source.initial_fetch_timeout.seconds == 0
