"""Model folders: one head, its threshold, what it was made from, and a certificate only if it is its own."""
