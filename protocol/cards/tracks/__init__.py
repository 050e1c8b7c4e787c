"""What readers are shown of the cards of each track, one value a track."""
