"""Dead letter queues of share groups (KIP-1191): topics for the records that a group could not process."""
