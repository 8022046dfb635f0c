from google.protobuf import struct_pb2

from weft.base.protobuf_messages import BOOL, MessagePool, field


def test_messages_are_encoded_as_their_fields_declare():
    pool = MessagePool(struct_pb2.DESCRIPTOR)
    inner = pool.add("shop.v1.Inner", field("yes", 1, BOOL))
    outer = pool.add(
        "shop.v1.Outer",
        field("name", 1),
        field("many", 2, repeated=True),
        field("inner", 3, "shop.v1.Inner"),
        field("free", 4, "google.protobuf.Struct"),
        string_maps={"given_labels": 5},
    )
    made = outer(name="a", many=["b", "c"], inner=inner(yes=True), given_labels={"k": "v"})
    assert made.SerializeToString() == (
        b"\x0a\x01a" + b"\x12\x01b\x12\x01c" + b"\x1a\x02\x08\x01" + b"\x2a\x06\x0a\x01k\x12\x01v"
    )
    assert outer.FromString(made.SerializeToString()) == made
    assert outer.DESCRIPTOR.full_name == "shop.v1.Outer"


def test_the_same_name_in_two_pools_is_two_messages():
    first = MessagePool().add("shop.v1.Item", field("name", 1))
    second = MessagePool().add("shop.v1.Item", field("other", 2))
    assert first(name="a").SerializeToString() == b"\x0a\x01a"
    assert second(other="a").SerializeToString() == b"\x12\x01a"
