"""Reports: one self-contained page, figures and tables for a paper, and a summary for the terminal."""
