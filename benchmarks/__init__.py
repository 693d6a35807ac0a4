"""What `make bench` runs: ratios against honest rivals measured in the same run."""
