"""The state of share partitions (KIP-932): which records of a partition a share group has done with.

`persister.py` says what the others may ask for, and is the seam between the three parts of share groups: the
groups (`coordinator/shares/groups`) and the share partitions (`coordinator/shares/partitions`) keep nothing
themselves. The share coordinator keeps it, in `__share_group_state`.
"""
