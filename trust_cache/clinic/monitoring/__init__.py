"""Monitor a model after its certificate: outcomes, audits, drift and the history of its use."""
