"""Synthetic mammograms and feature cohorts, with the exact truth about them."""
