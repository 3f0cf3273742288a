"""The training loop and the runs it leaves behind."""
