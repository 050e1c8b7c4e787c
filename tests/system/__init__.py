"""Tests of whole systems and of every command."""
