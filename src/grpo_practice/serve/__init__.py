"""The enhanced agent as an endpoint: its prompt in front of every request, all else passed on."""
