"""What people run rather than import: the demonstration."""
