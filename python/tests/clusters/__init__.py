"""Batches and sessions on a real Ray cluster: a head and two more nodes on this machine."""
