"""The explorer: pages on which people see for themselves where the time of a job went. It shows what analyzers found out."""
