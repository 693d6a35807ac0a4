"""The paper in one command: its published numbers, and ours beside them."""
