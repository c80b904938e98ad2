r"""Words of a command line that is printed to be copied into a shell.

Whatever a name holds comes back as the same name: blanks and quotes as in any shell, and what
terminals do not show (line breaks, escapes, bytes that are no UTF-8) in the form ``$'\x0a'``
of bash, zsh and ksh.
"""

from __future__ import annotations

import shlex


def shell_word(text: str) -> str:
    r"""Return a text as one word of a shell.

    Examples
    --------
    >>> print(shell_word("my file.h5"), shell_word("two\nlines"))
    'my file.h5' $'two\x0alines'
    """
    if text.isprintable():
        return shlex.quote(text)
    data = text.encode("utf-8", "surrogateescape")
    shown = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02x}" for b in data)
    return f"$'{''.join(shown)}'"


def shell_path(path: str) -> str:
    """Return a path as one word of a shell, which no command takes for an option.

    Examples
    --------
    >>> print(shell_path("-x.h5"))
    ./-x.h5
    """
    return shell_word(f"./{path}" if path.startswith("-") else path)
