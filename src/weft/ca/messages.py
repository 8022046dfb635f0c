"""The messages of the CA's two gRPC services: Istio's for certificates, and weft's for the roots to trust.

Built from descriptors (`base/protobuf_messages.py`), with the names and numbers of the fields on the wire.

    istio.v1.auth.IstioCertificateService/CreateCertificate   CSR → chain; Istio's agents and ztunnel use it
    weft.ca.v1.TrustBundles/Watch                             the roots, and again whenever they change
"""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2

from weft.base.protobuf_messages import INT64, MessagePool, field

CERTIFICATE_SERVICE = "istio.v1.auth.IstioCertificateService"
CREATE = "CreateCertificate"
BUNDLE_SERVICE = "weft.ca.v1.TrustBundles"
WATCH = "Watch"

_POOL = MessagePool(struct_pb2.DESCRIPTOR)

CertificateRequest: Any = _POOL.add(
    "istio.v1.auth.IstioCertificateRequest",
    field("csr", 1),
    field("validity_duration", 3, INT64),  # seconds
    field("metadata", 4, "google.protobuf.Struct"),
)
CertificateResponse: Any = _POOL.add("istio.v1.auth.IstioCertificateResponse", field("cert_chain", 1, repeated=True))
WatchRequest: Any = _POOL.add("weft.ca.v1.WatchRequest")
TrustBundle: Any = _POOL.add("weft.ca.v1.TrustBundle", field("trust_domain", 1), field("roots", 2, repeated=True))
