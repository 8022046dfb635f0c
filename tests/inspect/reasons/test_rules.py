from pathlib import Path

import pytest

from weft.inspect.reasons import rules
from weft.inspect.reasons.rules import RULES

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_rule_is_one_sentence_and_its_page_exists(rule):
    assert rule.says.endswith(".") and "\n" not in rule.says
    assert rule.name == rule.name.lower().replace(" ", "-")
    assert (DOCS / rule.page).is_file()


def test_rules_have_unique_texts():
    assert len({rule.says for rule in RULES.values()}) == len(RULES)


def test_every_rule_is_used():
    source = Path(rules.__file__).parents[2]
    said = "\n".join(file.read_text() for file in source.rglob("*.py") if file != Path(rules.__file__))
    named = {name for name, value in vars(rules).items() if isinstance(value, rules.DecisionRule)}
    assert [name for name in sorted(named) if f"rules.{name}" not in said and name != "BOOTSTRAP"] == []
