"""How the cards of each track are verified, one value a track."""
