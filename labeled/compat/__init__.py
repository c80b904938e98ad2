"""Older libraries by their own names and rules, each a thin face over this one."""
