"""From scores to operating points, bounds and a certificate that anyone can recompute."""
