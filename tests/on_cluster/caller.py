"""A caller that connects to the control plane's TLS port with given credentials, and prints the result.

Requests come in on stdin as JSON, results are written to stdout. It runs in the cluster's network
(`traffic.on_node`).
"""

import asyncio
import json
import sys

from cryptography import x509

from weft.ca.client import CertificateClient
from weft.ca.signer import CaUnavailable, SigningRefused
from weft.model.identity import parse_identity
from weft.node.key import Key
from weft.xds.copy import Copy
from weft.xds.upstream import ENDED, ControlPlaneStream, Line


async def certificate(asked, token, identity):
    """Request a certificate with a token and a CSR for an identity; returns the issued identity or the error."""
    client, key = CertificateClient(asked["address"], asked["roots"], server_name=asked["name"]), Key()
    try:
        issued = await client.create(token, key.request(parse_identity(identity)))
    except SigningRefused as refused:
        return {"refused": refused.reason, "why": str(refused)}, None
    except CaUnavailable as unavailable:
        return {"unavailable": str(unavailable)}, None
    finally:
        await client.close()
    leaf = x509.load_pem_x509_certificate(issued.chain[0].encode())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {"issued": names.get_values_for_type(x509.UniformResourceIdentifier)}, (issued, key)


async def stream(asked, question):
    """Open an agent's stream, with a certificate issued for the token `certified_by`, a token, and the requested
    node and pods."""
    got = None
    if question["certified_by"]:
        said, got = await certificate(asked, question["certified_by"], question["identity"])
        if got is None:
            return said

    async def line():
        shown = {"chain": "".join(got[0].chain), "key": got[1].secret_pem()} if got else {}
        token = question["token"]
        return Line(target=asked["address"], roots=asked["roots"], server_name=asked["name"], token=token, **shown)

    copy = Copy()
    for uid in question["pods"]:
        copy.add(uid)
    upstream = ControlPlaneStream(copy, question["node"], line)
    running = asyncio.create_task(upstream.run())
    async with asyncio.timeout(30):
        while upstream.trouble in ("", ENDED) and not (
            upstream.connected and copy.placements.keys() >= set(question["expected"])
        ):
            await asyncio.sleep(0.05)
    running.cancel()
    return {"trouble": upstream.trouble, "served": sorted(copy.placements)}


async def main():
    asked, answers = json.load(sys.stdin), {}
    for name, question in asked["questions"].items():
        if "node" in question:
            answers[name] = await stream(asked, question)
        else:
            answers[name], _ = await certificate(asked, question["token"], question["identity"])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
