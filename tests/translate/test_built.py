from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.translate.built import build, from_bytes, from_parts


def test_equal_content_has_an_equal_version():
    one, same, other = build("a", Cluster(name="a")), build("a", Cluster(name="a")), build("a", Cluster(name="b"))
    assert one.version == same.version != other.version
    assert one.type_url == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert Cluster.FromString(one.body).name == "a"


def test_a_large_body_is_kept_only_in_parts():
    large, small = from_parts("m", "a", [b"x" * 4000, b"y" * 4000]), from_parts("m", "a", [b"x", b"y"])
    assert large.body == b"x" * 4000 + b"y" * 4000
    assert large.parts == (b"x" * 4000, b"y" * 4000)
    assert small.parts == (b"xy",)
    assert small.body is small.parts[0]


def test_the_version_does_not_depend_on_the_division_into_parts():
    joined = from_bytes("m", "a", b"x" * 4000 + b"y" * 4000)
    assert from_parts("m", "a", [b"x" * 4000, b"y" * 4000]).version == joined.version
