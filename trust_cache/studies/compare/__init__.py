"""Is the difference real? A test, an interval, training noise and split noise for two configurations."""
