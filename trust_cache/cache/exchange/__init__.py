"""Features from and to other programs."""
