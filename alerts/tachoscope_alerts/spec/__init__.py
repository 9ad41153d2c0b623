"""Objectives, their policy, and the windows that follow from them."""
