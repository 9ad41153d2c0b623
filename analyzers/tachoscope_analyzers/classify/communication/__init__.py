"""Exposed communication, slow links and slow parts of the network."""
