"""The certificate again when outcomes arrive, corrected for repeated looks."""
