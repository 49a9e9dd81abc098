"""Metadata of the cluster and of the node itself, in the data directories of the node."""
