"""The HTTP server of a service's pages: authentication, TLS, limits and deadlines."""
