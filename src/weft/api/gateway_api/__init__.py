"""The standard Gateway API's kinds: documents in, values of `model/gateway_api.py` out."""
