"""Who may be whom: tokens are checked, certificates signed, roots kept and rotated. The only room that signs."""
