"""A run as one file for programs that know no bayesdg."""
