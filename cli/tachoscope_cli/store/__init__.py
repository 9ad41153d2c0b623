"""Commands about the store: traces in it, failures over its jobs, and how it stays small."""
