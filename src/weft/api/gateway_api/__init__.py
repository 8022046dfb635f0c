"""Readers of the kinds of the Gateway API: documents to values of `model/gateway_api.py`."""
