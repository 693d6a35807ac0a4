"""Rivals under matched conditions: other scores and other threshold rules on the same cases and splits."""
