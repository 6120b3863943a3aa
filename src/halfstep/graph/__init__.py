"""A float model as a program of our own, which computes exactly what the model computes."""
