"""What is wrong with a configuration."""

__all__ = ["ConfigError"]


class ConfigError(Exception):
    """The configuration cannot be used; the text is one sentence for the person who wrote it."""
