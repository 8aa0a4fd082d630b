"""The commands of the bench: one module each, with its flags and what it prints."""
