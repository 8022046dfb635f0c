"""The push pipeline: computes, from what a change touched, new resources for the groups of proxies that see the
change."""
