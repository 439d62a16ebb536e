"""Traces: a run as OpenTelemetry spans, sent to a collector as it goes on or afterwards."""
