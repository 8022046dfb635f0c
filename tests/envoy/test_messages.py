from envoy.config.core.v3.protocol_pb2 import Http2ProtocolOptions
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from google.protobuf.json_format import MessageToDict

from weft.envoy.messages import as_dict

# 21: {value: 5}, 22: {value: 7}, in protobuf's wire format
UNKNOWN = b"\xaa\x01\x02\x08\x05\xb2\x01\x02\x08\x07"


def test_fields_that_xds_protos_lacks_are_written():
    options = Http2ProtocolOptions(allow_connect=True)
    options.MergeFromString(UNKNOWN)
    assert as_dict(options) == {"allow_connect": True, "stream_reset_burst": "5", "stream_reset_rate": "7"}


def test_packed_messages_are_written_with_them_and_all_else_as_by_protobuf():
    manager = HttpConnectionManager(stat_prefix="outbound")
    manager.stream_idle_timeout.FromSeconds(3)
    listener = Listener(name="0.0.0.0_80")
    packed = listener.filter_chains.add().filters.add(name="http").typed_config
    packed.Pack(manager)
    assert as_dict(listener) == MessageToDict(listener, preserving_proto_field_name=True)
    manager.http2_protocol_options.MergeFromString(UNKNOWN)
    packed.Pack(manager)
    ((written,),) = (
        [each["typed_config"] for each in chain["filters"]] for chain in as_dict(listener)["filter_chains"]
    )
    assert written["http2_protocol_options"] == {"stream_reset_burst": "5", "stream_reset_rate": "7"}
