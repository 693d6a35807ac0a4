"""Metadata of a data set, and what is known about the public ones."""
