"""Commands about the store: traces in it, failures and efficiency over its jobs, and how it stays small."""
