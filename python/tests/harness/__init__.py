"""Rollouts of verifiers with a scripted model: our harness, and its own harness for our program."""
