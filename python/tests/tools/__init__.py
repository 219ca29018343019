"""Functions of this program, called by code in a session."""
