"""Commands that run or inspect one part of weft: control, node, ca, interception, version, completion."""
