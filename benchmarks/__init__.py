"""What `make bench` runs: ratios to fair rivals measured in the same run."""
