from __future__ import annotations

import msgspec
from bench.kube_admission import _WARM, _review, _timed

from bench import kube_mesh
from weft.cluster.sidecar_arguments import arguments
from weft.inject.injector import Injector
from weft.inject.review import decode
from weft.inject.settings import InjectionSettings


async def test_questions_are_asked_in_turn_and_the_first_ones_are_not_counted():
    asked = []

    async def question(word):
        asked.append(word)

    one, other = await _timed(3, lambda: question("one"), lambda: question("other"))
    assert len(one) == len(other) == 3
    assert asked == ["one", "other"] * (3 + _WARM)


def test_a_review_is_one_that_the_injector_answers_with_a_patch():
    body = msgspec.json.encode(_review(kube_mesh.pod("pod"), "shop"))
    answer = Injector(InjectionSettings(), arguments, native_sidecars=True).answer(decode(body))
    assert answer.allowed
    assert answer.patch
