"""Report and viewer in a real browser: `make browser-test`; skipped without playwright."""
