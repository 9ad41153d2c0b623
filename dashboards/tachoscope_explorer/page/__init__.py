"""What all screens share: the look, the address, cards, files that are opened."""
