"""Records on their way to a file: one queue for each process, and the shipment to a store."""
