"""The demonstration: the whole way on invented data, from DICOMs and from features to pages."""
