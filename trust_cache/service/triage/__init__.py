"""New examinations: from DICOM files to a worklist in which nothing broken is ever dismissed."""
