"""The pages of runbooks: their parts, and their queries with the labels of an alert filled in."""
