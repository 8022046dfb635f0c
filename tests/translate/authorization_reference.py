"""A second, independent implementation of AuthorizationPolicies: Istio's documented semantics, and weft's one
difference (values that deny are matched in every spelling). Policies are documents, requests are those of
`policy_rig.py`; no code of weft is used.

https://istio.io/latest/docs/reference/config/security/authorization-policy/ and …/conditions/
"""

import ipaddress
import re
from itertools import product
from urllib.parse import unquote

HTTP_SOURCE = {"requestPrincipals", "notRequestPrincipals"}
HTTP_OPERATION = {"hosts", "notHosts", "methods", "notMethods", "paths", "notPaths"}


def verdict(policies, request, *, address, port):
    """`allow` or `deny`, for a workload with the labels {app: orders} in the namespace shop."""
    chosen = [
        policy for policy in policies if _selects(policy) and not _is_dry_run(policy) and _action(policy) != "AUDIT"
    ]
    if not request.tcp and _is_disguised(chosen, request):
        return "deny"
    for action in ("CUSTOM", "DENY"):  # the tests' CUSTOM policies name a provider that does not exist
        for policy in chosen:
            if _action(policy) == action and any(
                _rule(policy, rule, request, address, port) for rule in _rules(policy)
            ):
                return "deny"
    allows = [policy for policy in chosen if _action(policy) == "ALLOW"]
    if not allows:
        return "allow"
    matched = any(_rule(policy, rule, request, address, port) for policy in allows for rule in _rules(policy))
    return "allow" if matched else "deny"


def _selects(policy):
    labels = policy["spec"].get("selector", {}).get("matchLabels", {})
    return policy["metadata"]["namespace"] in ("shop", "istio-system") and labels in ({}, {"app": "orders"})


def _is_dry_run(policy):
    return policy["metadata"].get("annotations", {}).get("istio.io/dry-run") == "true"


def _action(policy):
    return policy["spec"].get("action", "ALLOW")


def _rules(policy):
    return policy["spec"].get("rules", [])


def _is_disguised(policies, request):
    operations = [entry["operation"] for policy in policies for rule in _rules(policy) for entry in rule.get("to", [])]
    if any("paths" in operation or "notPaths" in operation for operation in operations):
        segments = re.split(r"(?i)[/\\]|%2f|%5c", seen_path(request.path))
        if any(re.split(r"(?i);|%3b", segment)[0] in (".", "..") for segment in segments):
            return True
    keys = [when["key"] for policy in policies for rule in _rules(policy) for when in rule.get("when", [])]
    names = {key[len("request.headers[") : -1].lower() for key in keys if key.startswith("request.headers[")}
    sent = {name.lower() for name, _ in request.headers}
    return any("_" in name and name.replace("_", "-") in names for name in sent)


def _rule(policy, rule, request, address, port):
    allow = _action(policy) == "ALLOW"
    namespace = policy["metadata"]["namespace"]
    if request.tcp and allow and _mentions_http(rule):
        return False
    sources = [entry["source"] for entry in rule.get("from", [])]
    operations = [entry["operation"] for entry in rule.get("to", [])]
    return (
        (not sources or any(_source(source, request, namespace) for source in sources))
        and (not operations or any(_operation(each, request, port, allow) for each in operations))
        and all(_condition(when, request, namespace, address, port) for when in rule.get("when", []))
    )


def _mentions_http(rule):
    return (
        any(HTTP_SOURCE & set(entry["source"]) for entry in rule.get("from", []))
        or any(HTTP_OPERATION & set(entry["operation"]) for entry in rule.get("to", []))
        or any(when["key"].startswith("request.") for when in rule.get("when", []))
    )


def _source(source, request, namespace):
    tests = {
        "principals": lambda value: _principal(value, request),
        "namespaces": lambda value: _namespace(value, request),
        "serviceAccounts": lambda value: _account(value, request, namespace),
        "trustDomains": lambda value: _domain(value, request),
        "ipBlocks": lambda value: _within(request.source, value),
        "remoteIpBlocks": lambda value: _within(_first_caller(request), value),
        "requestPrincipals": None if request.tcp else lambda value: _token(value, request),
    }
    return _fields(source, tests)


def _operation(operation, request, port, allow):
    tests = {"ports": lambda value: int(value) == port}
    if request.tcp:
        tests |= {"hosts": None, "methods": None, "paths": None}
    else:
        tests |= {
            "methods": lambda value: _text(value, request.method),
            "hosts": lambda value: _host(value, request, wide=not allow),
            "paths": lambda value: _path(value, request, wide=not allow),
            "notHosts": lambda value: _host(value, request, wide=allow),
            "notPaths": lambda value: _path(value, request, wide=allow),
        }
    return _fields(operation, tests)


def _fields(written, tests):
    """A test that is None cannot be made here, and is left out."""
    for name, values in written.items():
        positive = name[3].lower() + name[4:] if name.startswith("not") else name
        test = tests.get(name, tests[positive])
        if test is not None and any(test(value) for value in values) == name.startswith("not"):
            return False
    return True


def _condition(when, request, namespace, address, port):
    key = when["key"]
    if request.tcp and key.startswith("request."):
        return True
    name = key[key.index("[") + 1 : -1] if "[" in key else ""
    if key.startswith("request.headers"):
        sent = [value for sent, value in request.headers if sent.lower() == name.lower()]

        def test(value):
            return bool(sent) and (value == "*" or _text(value, ",".join(sent)))
    elif key.startswith("request.auth.claims"):

        def test(value):
            return _claim(value, request, name.split("]["))
    else:
        test = {
            "source.ip": lambda value: _within(request.source, value),
            "remote.ip": lambda value: _within(_first_caller(request), value),
            "source.namespace": lambda value: _namespace(value, request),
            "source.principal": lambda value: _principal(value, request),
            "source.serviceAccount": lambda value: _account(value, request, namespace),
            "source.trustDomain": lambda value: _domain(value, request),
            "request.auth.principal": lambda value: _token(value, request),
            "request.auth.audiences": lambda value: _claim(value, request, ["aud"]),
            "request.auth.presenter": lambda value: _claim(value, request, ["azp"]),
            "destination.ip": lambda value: _within(address, value),
            "destination.port": lambda value: int(value) == port,
            "connection.sni": lambda value: _text(value, request.server_name if request.principal else ""),
        }[key]
    if "values" in when and not any(test(value) for value in when["values"]):
        return False
    return not ("notValues" in when and any(test(value) for value in when["notValues"]))


def _text(pattern, value):
    if pattern == "*":
        return value != ""
    if pattern.startswith("*"):
        return value.endswith(pattern[1:])
    if pattern.endswith("*"):
        return value.startswith(pattern[:-1])
    return value == pattern


def _principal(pattern, request):
    identity = request.principal.removeprefix("spiffe://")
    return bool(identity) and _text(pattern, identity)


def _identity(request):
    found = re.fullmatch(r"spiffe://[^/]+/ns/([^/]+)/sa/([^/]+)", request.principal)
    return found.groups() if found else ("", "")


def _namespace(pattern, request):
    namespace = _identity(request)[0]
    return bool(namespace) and bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), namespace))


def _domain(pattern, request):
    return _text(pattern, request.principal.removeprefix("spiffe://").partition("/")[0])


def _account(written, request, own):
    return _identity(request) == (tuple(written.split("/")) if "/" in written else (own, written))


def _within(address, block):
    network = ipaddress.ip_network(block, strict=False)
    found = ipaddress.ip_address(address)
    return found.version == network.version and found in network


def _first_caller(request):
    forwarded = [value for name, value in request.headers if name.lower() == "x-forwarded-for"]
    return request.source if request.tcp or not forwarded else forwarded[-1].split(",")[-1].strip()


def _token(pattern, request):
    claims = request.claims or {}
    issuer, subject = claims.get("iss", ""), claims.get("sub", "")
    if not issuer or not subject:
        return False
    wanted_issuer, _, wanted_subject = pattern.rpartition("/")
    if pattern == "*":
        return True
    return _text(wanted_issuer, issuer) and _text(wanted_subject, subject)


def _claim(pattern, request, path):
    found = request.claims or {}
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    values = found if isinstance(found, list) else [found]
    return any(isinstance(value, str) and _text(pattern, value) for value in values)


def _host(pattern, request, *, wide):
    host, pattern = request.host.lower(), pattern.lower()
    if _text(pattern, host):
        return True
    if not wide:
        return False
    after = host.rpartition("@")[2]
    return _text(pattern, after if pattern.endswith("*") else re.sub(r"\.?(:.*)?$", "", after))


def _path(pattern, request, *, wide):
    path = seen_path(request.path)
    if _one_path(pattern, path):
        return True
    pattern, path = pattern.lower(), path.lower()
    return wide and any(_one_path(tidied, other) for tidied in {pattern, _tidy(pattern)} for other in _spellings(path))


def _one_path(pattern, path):
    if "{*}" in pattern or "{**}" in pattern:
        written = re.escape(pattern).replace(r"\{\*\*\}", ".*").replace(r"\{\*\}", "[^/]+")
        return bool(re.fullmatch(written, path))
    return _text(pattern, path)


def _tidy(pattern):
    return re.sub("/+", "/", re.sub(r"(?i)%2f|%5c|\\", "/", pattern))


def _spellings(path):
    """The paths that a server may read a path as: parameters stripped, separators decoded, in any order, slashes
    merged."""

    def stripped(text):
        return re.sub(r"(?i)(;|%3b)[^/]*", "", text)

    def decoded(text):
        return re.sub(r"(?i)%2f|%5c|\\", "/", text)

    def merged(text):
        return re.sub("/+", "/", text)

    steps = (stripped, decoded, merged)
    for order in product((None, *steps), repeat=4):
        result = path
        for step in order:
            result = step(result) if step else result
        yield result


def seen_path(target):
    """The path of a request's target after normalization, before policies match it (RFC 3986; backslashes are slashes)."""
    path = target.split("?")[0].replace("\\", "/")
    path = re.sub(r"%[0-9A-Fa-f]{2}", lambda found: _decoded_if_plain(found[0]), path)
    done = []
    segments = path.split("/")[1:]
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        if segment == "..":
            done = done[:-1]
        elif segment != ".":
            done.append(segment)
            continue
        if last:
            done.append("")
    return "/" + "/".join(done)


def _decoded_if_plain(encoded):
    character = unquote(encoded)
    return character if re.fullmatch(r"[A-Za-z0-9._~-]", character) else encoded
