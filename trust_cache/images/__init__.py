"""From a DICOM mammogram to the canonical 16-bit picture of the breast."""
