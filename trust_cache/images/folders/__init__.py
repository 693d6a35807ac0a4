"""Folders of DICOM files from a hospital: account for every entry, group the images into cases, list them."""
