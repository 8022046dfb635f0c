from __future__ import annotations

import msgspec
from bench.kube_admission import _WARM, _review, _timed

from bench import kube_mesh
from weft.cluster.sidecar_arguments import arguments
from weft.inject.injector import Injector
from weft.inject.review import decode
from weft.inject.settings import InjectionSettings


async def test_requests_alternate_and_the_warmup_is_not_counted():
    asked = []

    async def question(word):
        asked.append(word)

    one, other = await _timed(3, lambda: question("one"), lambda: question("other"))
    assert len(one) == len(other) == 3
    assert asked == ["one", "other"] * (3 + _WARM)


def test_the_injector_patches_the_pod_of_a_review():
    body = msgspec.json.encode(_review(kube_mesh.pod("pod"), "shop"))
    answer = Injector(InjectionSettings(), arguments, native_sidecars=True).answer(decode(body))
    assert answer.allowed
    assert answer.patch
