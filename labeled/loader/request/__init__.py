"""What is asked for.

`options` lists what can be asked, `arguments` checks it, `casts` and `classes` say
what it asks of sources.
"""
