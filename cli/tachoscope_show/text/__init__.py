"""What all renderings share: units, bars of states, texts that others wrote."""
