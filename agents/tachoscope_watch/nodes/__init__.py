"""The life cycle of a cluster's nodes: suspect, taken out, tested, returned."""
