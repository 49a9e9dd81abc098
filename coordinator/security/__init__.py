"""Users, permissions and limits of clients: pure rules and machines without I/O and clocks."""
