"""Stored groups and merges as spans of OpenTelemetry, sent to a collector that the user names."""
