"""Telling: beforehand, afterwards, and in pictures.

`explain` puts an `explanation` together of `costs`, `mixing` and `first_reads`; `stats` and
`timeline` tell of an epoch afterwards; `looks` and `pictures` show a loader.
"""
