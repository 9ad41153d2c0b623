"""What a long job takes: to store, to compact and to judge."""
