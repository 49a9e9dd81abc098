"""Share groups (KIP-932): their members (`groups`), their partitions on the nodes that lead them
(`partitions`), and below both what the share coordinator keeps (`state`)."""
