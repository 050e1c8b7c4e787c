"""The names that `import confide` gives."""
