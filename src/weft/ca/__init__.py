"""The certificate authority: checks tokens, signs certificates, keeps and rotates roots. The only package that
signs."""
