"""What is wrong with objectives, alerts and expressions."""
