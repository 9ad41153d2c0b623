"""What a change would bring."""
