"""One module per public data set, and their registry."""
