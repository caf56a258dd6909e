"""One family of errors, each a sentence for the reader: what was expected, what was found, where, what to do."""

import difflib
from collections.abc import Iterable


class DialnbError(Exception):
    """Base of every error that dialnb raises on purpose; the command line prints it without a traceback."""

    def __reduce__(self) -> tuple:
        """Between processes its words travel, whatever its constructor takes."""
        return Exception.__new__, (type(self), str(self))


class UnknownName(DialnbError):
    """A name (dataset, parameter, recipe ...) that is not among the known ones.

    >>> print(UnknownName("dataset", "CLINK150", ["CLINC150", "ATIS"]))
    unknown dataset 'CLINK150'; did you mean 'CLINC150'? Known: ATIS, CLINC150
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        folded = {k.casefold(): k for k in known}
        near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.4)
        hint = f"; did you mean {folded[near[0]]!r}?" if near else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among the known ones."""
    if name not in known:
        raise UnknownName(kind, name, known)


class BadParameter(DialnbError):
    """A parameter with the wrong type, an impossible value, or one that contradicts another."""


class DataError(DialnbError):
    """Bytes or rows that are not what they should be: wrong hash, malformed row, missing file, empty dataset."""


class Offline(DataError):
    """A file is needed, is neither cached nor mirrored, and the network may not or cannot be used."""


class TrainingError(DialnbError):
    """Training cannot go on: a NaN loss, a batch of one, a checkpoint that does not fit."""


def shown(text: object) -> str:
    """Text of others for a terminal: what would move its cursor, or turn letters around, is written out instead.

    >>> shown("\x1b[2Jall gone")
    '\\\\x1b[2Jall gone'
    """
    return "".join(one if one.isprintable() or one in "\n\t\xa0" else ascii(one)[1:-1] for one in f"{text}")


def first_sentence(error: Exception) -> str:
    """The first sentence of an error, as a reason in a table."""
    return str(error).splitlines()[0].split(". ")[0]


def in_words(error: BaseException) -> str:
    """An error as a sentence for a person at a shell; of what nobody foresaw, its kind as well.

    >>> in_words(PermissionError(13, "Permission denied", "runs"))
    'runs: permission denied'
    """
    if isinstance(error, MemoryError):
        return "there was not enough memory"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror[0].lower()}{error.strerror[1:]}"
    return str(error) if isinstance(error, DialnbError) else f"{type(error).__name__}: {error}"
