"""Predictions and how good they are."""
