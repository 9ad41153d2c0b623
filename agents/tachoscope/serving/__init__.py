"""Requests and iterations of an inference server."""
