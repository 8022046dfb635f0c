from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta

from cryptography import x509

from control.kubernetes import until
from weft.ca.authority import Authority, Terms
from weft.control.webhook_certificate import WebhookCertificate

NAMES = ("istiod.istio-system.svc",)


async def shown(port, roots, name=NAMES[0]):
    """The certificate that a caller is shown who trusts these roots and asks for this name."""
    context = ssl.create_default_context(cadata="".join(roots))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der)


async def serving(certificate):
    async def nothing(_reader, writer):
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=certificate.context)
    return server, server.sockets[0].getsockname()[1]


async def test_callers_who_trust_the_root_are_served_by_name():
    authority = Authority.in_memory("cluster.local")
    server, port = await serving(WebhookCertificate(authority, NAMES))
    async with server:
        found = await shown(port, authority.bundle())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == list(NAMES)


async def test_it_is_renewed_on_the_open_listener():
    authority = Authority.in_memory("cluster.local", Terms(lifetime=timedelta(seconds=1)))
    certificate = WebhookCertificate(authority, NAMES)
    running = asyncio.create_task(certificate.run())
    server, port = await serving(certificate)
    try:
        async with server:
            serials = {(await shown(port, authority.bundle())).serial_number for _ in range(2)}
            async with asyncio.timeout(10):
                while len(serials) < 3:
                    serials.add((await shown(port, authority.bundle())).serial_number)
                    await asyncio.sleep(0.05)
    finally:
        running.cancel()


async def test_when_another_root_signs_it_is_of_that_one():
    authority = Authority.in_memory("cluster.local", Terms(propagation=timedelta(0)))
    certificate = WebhookCertificate(authority, NAMES)
    running = asyncio.create_task(certificate.run())
    server, port = await serving(certificate)
    try:
        async with server:
            await asyncio.sleep(0)
            authority.rotate()
            authority.switch()
            before = certificate._renew_at
            await until(lambda: certificate._renew_at != before)
            await shown(port, authority.bundle()[:1])
    finally:
        running.cancel()
