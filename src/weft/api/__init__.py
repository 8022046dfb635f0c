"""Parses documents into model values, one file per kind. Whatever is wrong in a document becomes a problem; values that
pass this package are valid, so later code does not check them again."""
