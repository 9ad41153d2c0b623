"""The live ledger of each job on this node."""
