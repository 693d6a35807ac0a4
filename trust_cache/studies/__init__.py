"""Studies on caches and runs: external evaluation, sweeps, comparisons, rivals, and their charts."""
