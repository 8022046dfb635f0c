"""A mesh from files that are not applied: the problems it would have, the pods it would run."""
