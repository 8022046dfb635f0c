"""The certificate authority: checks tokens, signs certificates, stores and rotates roots. No other package signs
certificates."""
