"""The findings of `weft audit`: certificates, plaintext, policies, memory."""
