"""Share partitions (KIP-932): who has which records of a partition, on the node that leads it."""
