"""Decode compressed and uncompressed frames of DICOM files, with one named decoder for each."""
