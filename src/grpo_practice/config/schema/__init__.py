"""The typed models of a configuration."""
