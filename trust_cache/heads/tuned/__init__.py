"""The configuration `tuned`: logistic regressions, weighed inside each fold."""
