"""Measure and explain what quantizing did to a model; nothing here changes one."""
