"""Checkpoints of a training: their files, and how a training continues from one."""
