"""`search` and `web_qa`: the web, searched and read."""
