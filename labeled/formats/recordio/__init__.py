"""RecordIO files: framed payloads one after another, mostly labelled pictures (``.rec``)."""
