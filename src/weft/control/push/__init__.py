"""The push pipeline: from what a change touched to new resources for the groups of proxies that see it."""
