"""What people run rather than import: the demonstration, models, triage, monitoring, doctor and estimates."""
