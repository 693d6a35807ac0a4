"""From cached features to heads with a closed-loop threshold and out-of-fold scores."""
