"""Random mutations of objects: values that a type cannot hold, values of other fields, missing, doubled and moved parts.
The same seed gives the same mutations."""

import copy
import json

_HUGE = 10**30
VALUES = (
    *(None, True, False, 0, -1, 1, 80, 65_535, 65_536, 2**31 - 1, 2**31, 2**63, _HUGE, -_HUGE, 10**400, -(10**4_000), 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), "", " ", "0", "-1", "1e3", "80", "080", "٣", "²", "65536", "9" * 30, "true", "null"),
    *("10.0.0.300", "10.0.0.1", "10.0.0.0/8", "10.0.0.1/8", "10.0.0.0/33", "0.0.0.0/0", "::", "::/0", "fe80::1%eth0"),
    *("::ffff:10.0.0.1", "1.2.3", "10.0.0.01", "256.0.0.0", "[::1]:80", "127.0.0.1:99999", "2001:db8::/129", "1"),
    *("*", "*.", "*.*", "**", ".", "..", "a..b", "-a", "a-", "A.B", "a_b", "a/b", "/", "//", "a/*", "*/*", "./*", "~"),
    *("x" * 64, "x" * 254, "x." * 127, "ü.de", "xn--a", "\x00", "\n", "\t", "\r\n", "\x7f", "\ud800", "\U0001f600"),
    *("0s", "1s", "-1s", "1", "1.5s", "1h1h", "1e9s", "9999999999h", "0.0000001s", ".s", "s", "1 s", "1d", "1ns"),
    *("unix://", "unix:///x", "unix://@x", "http://", "https://a:b/c", "https://[::1/", "https://a:99999/", "//a", "a:b:c"),
    *("(", "[", "(?=a)", "(a*)*", "a{1001}", "\\", "%", "%s", "%zz", "%(", "%REQ(", "{", "{}", "{a}", "{0}", "[]", "${x}"),
    *("request.headers[", "request.headers[]", "response.code >=", "1 +", "a.b.c.d", "has(", "'", '"', "[x]", "x]["),
    *("---", "- a", "a: b", "&a *a", "!!python/object:x", "!x y", "<<", "2001-01-01", "0x10", "1_000", "0o7", "1:30"),
    *("eyJhbGciOiJub25lIn0.e30.", "-----BEGIN CERTIFICATE-----", "LS0t", "=", "é", "spiffe://a/ns/b/sa/c", "mesh"),
)  # fmt: skip
_NAMES = ("spec", "", "0", "name", "x", "é", "\x00", "a.b", "a[0]", "<<", "metadata", "kind", "items", "status")


class Mutator:
    """Mutates objects. `objects`: values of fields are taken from these for fields of the same name."""

    def __init__(self, random, objects):
        self._random = random
        self._values = {}  # field name -> values
        self._siblings = {}  # name of the field that holds a mapping -> pairs of field and value
        for each in objects:
            self._collect("", each)

    def mutated(self, body):
        """Return a mutated copy of an object. It still has a kind and a name in most cases."""
        body = copy.deepcopy(body)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            places = [place for place in _places(body) if len(place) > 1 or self._random.random() < 0.05]
            if not places:
                return body
            self._mutate(body, self._random.choice(places))
        return body

    def _mutate(self, body, place):
        holder = body
        for part in place[:-1]:
            holder = holder[part]
        name, random = place[-1], self._random
        match random.choice(
            ("junk", "junk", "junk", "graft", "graft", "add", "remove", "wrap", "double", "many", "text")
        ):
            case "junk":
                holder[name] = copy.deepcopy(random.choice(VALUES))
            case "graft":
                of_same_name = self._values.get(_field(place), ()) if random.random() < 0.7 else ()
                holder[name] = copy.deepcopy(random.choice(of_same_name or random.choice(list(self._values.values()))))
            case "add" if isinstance(holder[name], dict):
                pairs = self._siblings.get(_field(place)) or ((random.choice(_NAMES), random.choice(VALUES)),)
                field, value = random.choice(pairs) if random.random() < 0.8 else (random.choice(_NAMES), _junk(random))
                holder[name][field] = copy.deepcopy(value)
            case "add" | "double" if isinstance(holder, list):
                holder.insert(name, copy.deepcopy(holder[name]))
            case "remove":
                del holder[name]
            case "wrap":
                holder[name] = random.choice(([holder[name]], {"x": holder[name]}, [], {}, [[holder[name]]], [None]))
            case "many":
                value = holder[name]
                holder[name] = [copy.deepcopy(value) for _ in range(random.choice((2, 50, 300)))]
            case _:
                holder[name] = _scrambled(random, holder[name])

    def _collect(self, name, value):
        if isinstance(value, dict):
            for field, inner in value.items():
                self._values.setdefault(field, []).append(inner)
                self._siblings.setdefault(name, []).append((field, inner))
                self._collect(field, inner)
        elif isinstance(value, list):
            for inner in value:
                self._collect(name, inner)


def as_text(bodies, *, ascii_only=False):
    """Return a YAML file with these objects."""
    text = "\n---\n".join(json.dumps(body, ensure_ascii=ascii_only) for body in bodies)
    return text.encode(errors="surrogatepass")


def as_file(random, bodies):
    """Return the name and the content of a file with these objects, in YAML or JSON, sometimes with a damaged place."""
    name, ascii_only = random.choice(("mesh.yaml", "mesh.yml", "mesh.json")), random.random() < 0.5
    if name == "mesh.json":
        bodies = [{"apiVersion": "v1", "kind": "List", "items": bodies}]
    content = as_text(bodies, ascii_only=ascii_only)
    if random.random() < 0.05:
        at = random.randrange(len(content) + 1)
        junk = random.choice((b"", b"\xff", b"\x00", b"{", b"}", b"[" * 200, b"\n---\n", b": ", b"*x", b"\t", b'"'))
        content = content[:at] + junk + content[at + random.choice((0, 1, 5)) :]
    return name, content


def _junk(random):
    return random.choice(VALUES)


def _scrambled(random, value):
    """Change one place in a text; other values become text."""
    text = value if isinstance(value, str) else json.dumps(value)[:200]
    at = random.randrange(len(text) + 1)
    return (
        text[:at]
        + random.choice(("", ".", "/", "*", ":", "-", "0", "x" * 300, " ", ",", "\u2028", "%"))
        + text[at + 1 :]
    )


def _places(value, above=()):
    """Return the paths of all values inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*above, name)
        yield from _places(each, (*above, name))


def _field(place):
    return next((part for part in reversed(place) if isinstance(part, str)), "")
