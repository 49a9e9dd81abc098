"""A node of a cluster: its link to the controllers, its replicas, its directories."""
