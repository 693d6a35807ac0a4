"""The formulas of the certificate: pure functions of numpy arrays."""
