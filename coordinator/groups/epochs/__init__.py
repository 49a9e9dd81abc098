"""Groups with epochs (KIP-848): one heartbeat, by which members join, stay, come to their target assignment
and leave. Consumer, streams (KIP-1071) and share groups (KIP-932) differ in what is assigned, and in how a
member moves."""
