"""The shortest list of layers that have to stay in float."""
