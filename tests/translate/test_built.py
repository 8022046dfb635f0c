from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.translate.built import build, from_bytes, from_parts


def test_equal_content_has_an_equal_version():
    one, same, other = build("a", Cluster(name="a")), build("a", Cluster(name="a")), build("a", Cluster(name="b"))
    assert one.version == same.version != other.version
    assert one.type_url == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert Cluster.FromString(one.body).name == "a"


def test_of_a_large_body_the_parts_are_kept_and_the_body_is_not():
    large, small = from_parts("m", "a", [b"x" * 4000, b"y" * 4000]), from_parts("m", "a", [b"x", b"y"])
    assert large.body == b"x" * 4000 + b"y" * 4000
    assert large.parts == (b"x" * 4000, b"y" * 4000)
    assert small.parts == (b"xy",)
    assert small.body is small.parts[0]


def test_how_it_was_joined_makes_no_other_version():
    joined = from_bytes("m", "a", b"x" * 4000 + b"y" * 4000)
    assert from_parts("m", "a", [b"x" * 4000, b"y" * 4000]).version == joined.version
