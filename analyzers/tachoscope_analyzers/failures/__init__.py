"""Why an attempt failed: how each of its ranks ended, which of them was first, and whether it failed so before."""
