"""Traces of runs as OpenTelemetry spans, sent to a collector during a run or afterwards."""
