"""What people call: the demonstration, the machine check and the estimate of an extraction."""
