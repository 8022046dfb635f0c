"""A mesh as one group sees it, to Envoy's resources. Pure functions: equal views give equal bytes."""
