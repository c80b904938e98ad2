"""The version of this library, known in a source tree that nobody installed, too."""

VERSION = "0.1.0"
