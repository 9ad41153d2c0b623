"""From the store or the spool to tables of a job."""
