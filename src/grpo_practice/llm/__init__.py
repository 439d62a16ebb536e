"""Access to a chat endpoint: one client, one retry layer, one taxonomy of failures."""
