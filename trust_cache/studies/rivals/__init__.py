"""Rivals: other score models and other threshold rules on the same cases, folds and split."""
