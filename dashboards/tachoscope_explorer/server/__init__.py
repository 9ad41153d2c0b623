"""The process that serves the pages: access, sessions, headers."""
