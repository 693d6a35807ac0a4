"""The errors a user can meet, each with the exit code that the command line gives it."""


class TrustCacheError(Exception):
    """Base of all expected errors: the message says what was expected, found, where, what to do."""

    exit_code = 70


class InputError(TrustCacheError, ValueError):
    """The input or the way of calling is wrong; nothing was written."""

    exit_code = 2


class StoppedError(TrustCacheError):
    """The work stopped early (a full disk, a lost cluster) and can be resumed."""

    exit_code = 3
