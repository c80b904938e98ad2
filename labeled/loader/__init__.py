"""Feeding batches: plans made of integers, threads that read, batches handed out."""
