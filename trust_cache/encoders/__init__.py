"""Frozen encoders: pixels in, features out, with the recipe and identity of each."""
