"""The boards, one a file; `all.py` lists them."""
