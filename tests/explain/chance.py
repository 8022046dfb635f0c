"""Random choices, and the words that documents and requests share. They come from small sets, so that requests often
match the documents."""

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

ISTIO, SECURITY = "networking.istio.io/v1", "security.istio.io/v1"
SELECTOR = {"matchLabels": {"app": "SERVICE"}}
HEADERS = ("x-user", "x-env", "x-long-name")
VALUES = ("alice", "bob", "al", "ALICE", "v1", "v12", "a,b", "")
_PIECES = (
    *("/", "/", "/", "a", "a", "b", "A", "ab", "v1", "api", "..", ".", "%2F", "%2f", "%5C", "\\", "%2e", "%41", "%7E"),
    *(";v=1", "~", "-", "_", "+", "@", ":", "*", "!", "$", "'", "(", ")", ",", "=", "&", "%20", "%C3%A9", "%zz", "%"),
    *('"', "<", ">", "[", "]", "^", "`", "{", "|", "}", "%3F", "%25", "%5B", "%c3"),
)
KINDS = (
    *("application/grpc", "application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"),
    *("application/grpc+json", "Application/grpc-web", "application/grpc-web; charset=x", "text/plain"),
)
PATHS = ("/", "/a", "/a/b", "/A/b", "/ab", "/api/v1", "/api/v1/x", "/a/", "/b", "/a/../b", "//a", "/a%2Fb")
_QUERIES = ("", "", "", "?", "?x=1", "?x=1&x=2", "?page=a&x=", "?x", "?X=1", "?a=b?c&x=v1", "?page=%61", "?x=alice")


def drawn(strategy, number, seed):
    """`number` examples of a strategy, the same for the same seed."""
    found = []

    @seeded(seed)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(each):
        found.append(each)

    collect()
    return found


class Chance:
    def __init__(self, chance):
        self.chance = chance

    def pick(self, *choices):
        return self.chance.choice(choices)

    def one_in(self, number):
        return self.chance.randrange(number) == 0

    def some(self, choices, most=2):
        return self.chance.sample(choices, self.chance.randint(1, min(most, len(choices))))

    def target(self):
        path = self.pick(*PATHS)
        if self.one_in(3):
            path = "/" + "".join(self.pick(*_PIECES) for _ in range(self.chance.randint(1, 7)))
        return path + self.pick(*_QUERIES)


def document(version, kind, spec, name="SERVICE"):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}
