"""Where records are kept: the spool on a node, the store of a fleet, and requests that are left in them."""
