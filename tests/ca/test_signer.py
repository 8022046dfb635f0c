from typing import get_type_hints

from weft.ca.client import CertificateClient
from weft.ca.service import CertificateService
from weft.ca.signer import ServiceReason, Signer, SigningRefused


def test_the_service_and_the_client_are_called_alike():
    for implementation in (CertificateService, CertificateClient):
        assert get_type_hints(implementation.create) == get_type_hints(Signer.create)
        assert get_type_hints(implementation.bundles) == get_type_hints(Signer.bundles)


def test_a_refusal_keeps_its_reason():
    assert SigningRefused(ServiceReason.RATE, "wait").reason == "too-many-requests"
