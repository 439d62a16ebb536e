"""The server side of the chat API."""
