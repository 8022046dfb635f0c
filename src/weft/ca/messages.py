"""The words of the CA's two gRPC services: Istio's own for certificates, and weft's for the roots to trust.

Built from descriptors here, in a pool of their own: no generated files, and nobody's messages of the same name collide.

    istio.v1.auth.IstioCertificateService/CreateCertificate   CSR → chain; Istio's agents and ztunnel speak it
    weft.ca.v1.TrustBundles/Watch                             the roots, and again whenever they change
"""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

CERTIFICATE_SERVICE = "istio.v1.auth.IstioCertificateService"
CREATE = "CreateCertificate"
BUNDLE_SERVICE = "weft.ca.v1.TrustBundles"
WATCH = "Watch"

_STRING, _INT64, _MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_MESSAGE,
)
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


def _field(name: str, number: int, kind: Any, label: Any = _ONE, type_name: str = "") -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=kind, label=label, type_name=type_name or None)


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(
        FileDescriptorProto(
            name="security/v1alpha1/ca.proto",
            package="istio.v1.auth",
            syntax="proto3",
            dependency=["google/protobuf/struct.proto"],
            message_type=[
                DescriptorProto(
                    name="IstioCertificateRequest",
                    field=[
                        _field("csr", 1, _STRING),
                        _field("validity_duration", 3, _INT64),  # seconds
                        _field("metadata", 4, _MESSAGE, type_name=".google.protobuf.Struct"),
                    ],
                ),
                DescriptorProto(name="IstioCertificateResponse", field=[_field("cert_chain", 1, _STRING, _MANY)]),
            ],
        ).SerializeToString()
    )
    pool.AddSerializedFile(
        FileDescriptorProto(
            name="weft/ca/v1/bundles.proto",
            package="weft.ca.v1",
            syntax="proto3",
            message_type=[
                DescriptorProto(name="WatchRequest"),
                DescriptorProto(
                    name="TrustBundle", field=[_field("trust_domain", 1, _STRING), _field("roots", 2, _STRING, _MANY)]
                ),
            ],
        ).SerializeToString()
    )
    return pool


_POOL = _pool()
CertificateRequest: Any = GetMessageClass(_POOL.FindMessageTypeByName("istio.v1.auth.IstioCertificateRequest"))
CertificateResponse: Any = GetMessageClass(_POOL.FindMessageTypeByName("istio.v1.auth.IstioCertificateResponse"))
WatchRequest: Any = GetMessageClass(_POOL.FindMessageTypeByName("weft.ca.v1.WatchRequest"))
TrustBundle: Any = GetMessageClass(_POOL.FindMessageTypeByName("weft.ca.v1.TrustBundle"))
