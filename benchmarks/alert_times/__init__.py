"""When alerts fire: beside what the arithmetic says, and beside the alerts that Sloth makes."""
