"""What ibid raises: the engine's sentences as exceptions."""

from __future__ import annotations


class IbidError(Exception):
    """An error of the engine. `str()` is its sentence.

    Attributes:
        field: the option or field of a request at fault, as "temperature"; "" where there is none.
        body: what the server would have answered, as JSON; "" where no request was refused.
    """

    def __init__(self, message: str, field: str = "", body: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.body = body

    def __reduce__(self) -> tuple[type[IbidError], tuple[str, str, str]]:
        return type(self), (str(self), self.field, self.body)


class InvalidError(IbidError, ValueError):
    """An option, a field or an argument is wrong."""


class UnsupportedError(IbidError, ValueError):
    """Well formed, but not served by this engine."""


class NotFoundError(IbidError, LookupError):
    """A file, a model or a path does not exist."""


class BusyError(IbidError):
    """The queue or a budget is full; try again when requests have ended."""


class UnavailableError(IbidError):
    """The network or the disk failed; trying again may help."""


class NoMemoryError(IbidError, MemoryError):
    """An allocation failed, or the model does not fit."""


class ClosedError(IbidError):
    """The engine is closed."""


class ForkedError(IbidError):
    """The engine belongs to the process that this one was forked from."""


# By the numbers of include/ibid.h.
BY_CODE: dict[int, type[IbidError]] = {
    1: InvalidError,
    2: UnsupportedError,
    3: NotFoundError,
    4: BusyError,
    5: UnavailableError,
    6: NoMemoryError,
    7: IbidError,
    8: ClosedError,
    9: ForkedError,
}

# By the statuses of the server.
BY_STATUS: dict[int, type[IbidError]] = {
    400: InvalidError,
    404: NotFoundError,
    413: InvalidError,
    429: BusyError,
    501: UnsupportedError,
    503: UnavailableError,
}
