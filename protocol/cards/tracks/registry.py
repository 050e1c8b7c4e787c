"""The tracks by name."""

from confide.protocol.cards.card import Layer
from confide.protocol.cards.tracks.base import Track
from confide.protocol.cards.tracks.central import CENTRAL_TRACK
from confide.protocol.cards.tracks.full_data import FULL_DATA_TRACK
from confide.protocol.cards.tracks.local import LOCAL_TRACK
from confide.protocol.cards.tracks.monitor import MONITOR_TRACK
from confide.protocol.errors import BadInput

TRACKS: dict[str, Track] = {}


def register(track: Track) -> Track:
    """Make a track known to all that show cards."""
    if TRACKS.setdefault(track.name, track) is not track:
        raise BadInput(f"track {track.name!r} is registered already; accepted is another name")
    return track


for _track in (CENTRAL_TRACK, LOCAL_TRACK, FULL_DATA_TRACK, MONITOR_TRACK):
    register(_track)


def track_of(formal: Layer) -> Track:
    """Return the track of a card."""
    return TRACKS[formal["track"]]
