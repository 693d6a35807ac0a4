"""What every package builds on: errors, files, places, locks, the executor, tables, documents, digests."""
