"""Explain what would happen to a request, and why a proxy has a resource."""
