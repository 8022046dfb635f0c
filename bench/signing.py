"""Measures the CA: certificates per second and core, from the received token and CSR to the certificate chain in
PEM.

The CA runs in this process and signs one certificate at a time, as `weft control` does. The rate is based on CPU
time, so that other processes on the machine have little influence. The caller's key is created before the
measurement, because it is not work of the CA.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bench.figure import Effort, Figure, Say
from weft.ca.authority import Authority
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.tokens import Caller

_ROUNDS = 5


def run(effort: Effort, say: Say) -> list[Figure]:
    authority, issuer = Authority.in_memory("cluster.local"), TokenIssuer()
    checker = issuer.checker()
    number = effort.of(1000, 100)
    # Each certificate has its own caller, as with many pods, because the CA limits the rate of certificates per pod.
    tokens = [issuer.issue(Caller("shop", "web", f"web-{each}", f"uid-{each}")) for each in range(number)]
    figures = []
    for name, key in (
        ("P-256", ec.generate_private_key(ec.SECP256R1())),
        ("RSA 2048", rsa.generate_private_key(65_537, 2048)),
    ):
        csr = _csr(key)

        def sign(csr: bytes = csr) -> None:
            service = CertificateService(authority, checker)

            async def all_of_them() -> None:
                for token in tokens:
                    await service.create(token, csr)

            asyncio.run(all_of_them())

        rate = _rate(sign, number)
        say(f"{name}: {rate:,.0f} certificates per second and core")
        figures.append(Figure(f"CA: certificates, {name}", rate, "per core second"))
    rate = _rate(lambda: [checker.check_now(token) for token in tokens], number)
    say(f"{rate:,.0f} tokens checked per second and core")
    figures.append(Figure("CA: tokens checked (ES256)", rate, "per core second"))
    return figures


def _rate(work: Callable[[], object], number: int) -> float:
    rates = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        rates.append(number / (time.process_time() - began))
    return median(rates)


def _csr(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)
