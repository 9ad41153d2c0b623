"""The HTTP server of the agent's pages: authentication, TLS, limits and deadlines."""
