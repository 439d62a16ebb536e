"""Talking to a chat endpoint: one client, one retry layer, one taxonomy of what can go wrong."""
