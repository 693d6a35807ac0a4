"""The formulas of the certificate, each in one place: pure functions of numpy arrays."""
