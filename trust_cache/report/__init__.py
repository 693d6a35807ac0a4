"""Reports: one self-contained page, its figures and tables for a paper, and a terminal twin."""
