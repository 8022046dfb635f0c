"""Find the reasons for a resource, for `weft why`: the objects behind each part of the resource, and the decision rules
of weft (`rules.py`), which apply where no object sets a value, or more than one does."""
