"""Security, with real clients, tools and processes."""
