import re

from hypothesis import given
from hypothesis import strategies as st

from weft.inject.sidecar import for_kubelet, variable


def kubelet(text, environment):
    """Expand an argument as Kubernetes does: two dollars are one, $(NAME) is a variable, and nothing else is special."""

    def expand(found):
        return "$" if found[0] == "$$" else environment.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", expand, text)


def test_a_variable_is_filled_in_by_kubelet():
    text = for_kubelet(f'{{"id": "{variable("POD_NAME")}.{variable("POD_NAMESPACE")}"}}')
    assert text == '{"id": "$(POD_NAME).$(POD_NAMESPACE)"}'


@given(st.text(alphabet="$()POD_NAME ab", max_size=40))
def test_whatever_else_has_dollars_arrives_as_it_was_written(text):
    assert kubelet(for_kubelet(text), {"POD_NAME": "web", "": "nothing"}) == text
