"""What every room stands on: errors with exit codes, files that are whole or absent, digests."""
