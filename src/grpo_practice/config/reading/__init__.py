"""From YAML, flags and environment to a typed configuration."""
