"""Train heads on cached features, with a closed-loop threshold and out-of-fold scores."""
