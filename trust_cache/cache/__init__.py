"""From images to features on disk: the store, its fingerprint, and rows to train on."""
