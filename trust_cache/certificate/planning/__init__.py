"""Plan a study before it starts, and the monitoring after it."""
