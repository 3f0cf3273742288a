"""Experiments as plans, and what runs them on one machine or many."""
