"""The version of this code, as cards state it and every command line shows it."""

CODE_VERSION = "0.1.0"
