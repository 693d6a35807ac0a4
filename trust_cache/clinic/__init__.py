"""Model folders, triage of new cases, worklists and monitoring."""
