from weft.model.outcome import ACCEPTED, RESOLVED, not_accepted, unresolved


def test_conditions_have_the_standards_names():
    assert (ACCEPTED.type, ACCEPTED.holds, ACCEPTED.reason) == ("Accepted", True, "Accepted")
    assert (RESOLVED.type, RESOLVED.holds, RESOLVED.reason) == ("ResolvedRefs", True, "ResolvedRefs")
    assert (not_accepted("Why", "so").type, not_accepted("Why", "so").holds) == ("Accepted", False)
    assert (unresolved("Why", "so").type, unresolved("Why", "so").message) == ("ResolvedRefs", "so")
