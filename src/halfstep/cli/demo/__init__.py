"""``halfstep demo``."""
