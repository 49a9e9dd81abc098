"""The error of a configuration."""


class ConfigError(Exception):
    """The configuration cannot be used; the text is one sentence for the operator."""
