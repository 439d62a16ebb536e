"""The tools `search` and `web_qa`, which search the web and read pages."""
