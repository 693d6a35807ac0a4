"""The pixel gate: are the pixels of a picture plausible?"""
