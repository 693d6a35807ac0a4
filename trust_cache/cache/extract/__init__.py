"""Stage one: from pictures to a cache of features."""
