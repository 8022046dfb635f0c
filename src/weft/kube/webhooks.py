"""Checks whether the API server can call weft's webhooks: each webhook configuration needs the right `caBundle`, and
its Service needs a ready endpoint. A configuration that lacks these is a problem, because it blocks the creation
of other objects."""

from __future__ import annotations

import base64
import re

import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.kube.client import Client
from weft.kube.error import KubeError
from weft.kube.resource import CONFIG_MAPS, ENDPOINT_SLICES, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from weft.model.proxy import ROOT_CONFIG_MAP

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


async def unanswered(client: Client, labels: str) -> list[Problem]:
    """Return a warning for each webhook configuration, selected by `labels`, whose webhooks the API server cannot call:
    the caBundle is missing or of another CA, or the Service has no ready endpoint."""
    problems = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for each in (await client.list(resource, _Webhooks, labels=labels)).items:
            where = Where(object=f"{resource.kind} {each.metadata.name}")
            service = each.webhooks[0].client_config.service if each.webhooks else _Service()
            if not all(webhook.client_config.ca_bundle for webhook in each.webhooks):
                what = "the configuration has no caBundle: the API server cannot verify the webhook's certificate"
                hint = f"the control plane writes the caBundle; see: kubectl logs -n {service.namespace} -l app=istiod"
                problems.append(Problem(where, what, hint, Severity.WARNING, "WFT0815"))
            elif not await _is_believed(client, service, each.webhooks):
                what = (
                    "the caBundle is of another CA than the control plane's: the API server cannot verify the webhook"
                )
                published = f"ConfigMap {ROOT_CONFIG_MAP} in {service.namespace}"
                hint = f"compare the caBundle with {published}; the control plane writes the caBundle again"
                problems.append(Problem(where, what, hint, Severity.WARNING, "WFT0815"))
            elif not await _answers(client, service):
                what = f"Service {service.namespace}/{service.name} has no ready endpoint"
                hint = f"try: kubectl get pods -n {service.namespace} -l app=istiod"
                problems.append(Problem(where, what, hint, Severity.WARNING, "WFT0815"))
    return problems


async def _is_believed(client: Client, service: _Service, webhooks: tuple[_Webhook, ...]) -> bool:
    """Whether each webhook's caBundle contains one of the root certificates that the control plane has published.
    True as well if the published root certificates cannot be read."""
    try:
        published = await client.get(CONFIG_MAPS, ROOT_CONFIG_MAP, _ConfigMap, namespace=service.namespace)
    except KubeError:
        return True
    roots = _certificates(published.data.get("root-cert.pem", ""))
    return not roots or all(roots & _certificates(_decoded(each.client_config.ca_bundle)) for each in webhooks)


def _decoded(bundle: str) -> str:
    try:
        return base64.b64decode(bundle).decode()
    except ValueError:
        return ""


def _certificates(text: str) -> set[str]:
    """Return the base64 text of each PEM certificate in `text`, without line breaks."""
    return {"".join(body.split()) for body in _CERTIFICATE.findall(text)}


async def _answers(client: Client, service: _Service) -> bool:
    labels = f"kubernetes.io/service-name={service.name}"
    slices = (await client.list(ENDPOINT_SLICES, _Slice, namespace=service.namespace, labels=labels)).items
    return any(endpoint.conditions.ready is not False for each in slices for endpoint in each.endpoints or ())


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Metadata(_Camel, frozen=True):
    name: str


class _Service(_Camel, frozen=True):
    name: str = ""
    namespace: str = ""


class _ClientConfig(_Camel, frozen=True):
    service: _Service = _Service()
    ca_bundle: str = ""


class _Webhook(_Camel, frozen=True):
    client_config: _ClientConfig


class _Webhooks(_Camel, frozen=True):
    metadata: _Metadata
    webhooks: tuple[_Webhook, ...] = ()


class _ConfigMap(_Camel, frozen=True):
    data: dict[str, str] = {}


class _Conditions(_Camel, frozen=True):
    ready: bool | None = None


class _Endpoint(_Camel, frozen=True):
    conditions: _Conditions = _Conditions()


class _Slice(_Camel, frozen=True):
    endpoints: tuple[_Endpoint, ...] | None = None
