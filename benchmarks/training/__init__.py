"""Private training: its engines, its noise, its accuracy and an audit of it."""
