"""Sweeps: many settings of a head over folds and repeats, one winner chosen on the search subset."""
