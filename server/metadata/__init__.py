"""What a node keeps of the cluster and of itself in its data directories."""
