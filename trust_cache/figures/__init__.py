"""Every chart of the project, drawn once."""
