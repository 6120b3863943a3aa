"""Everything that Halfstep raises.

    HalfstepError
    ├── ArgumentError (ValueError)         a value that is not allowed
    │   ├── NonFiniteError                 NaN where a number is needed
    │   └── GranularityError               a question or a view that does not fit the scale's shape
    ├── ArgumentTypeError (TypeError)      a value of the wrong type
    ├── FallbackError (RuntimeError)       an op would leave the integers under ``no_fallback``
    ├── MutationError (RuntimeError)       an in-place change of a quantized tensor
    ├── FileFormatError (ValueError)       a file that is truncated, corrupt or of another kind
    │   └── MissingFileError               a file that is not there (FileNotFoundError)
    └── MissingExtraError (ImportError)    an optional package is needed and not installed

Every error is a ``HalfstepError`` and also the builtin that it specialises, so old ``except
ValueError`` code keeps working.
"""

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "FallbackError",
    "FileFormatError",
    "GranularityError",
    "HalfstepError",
    "HalfstepWarning",
    "MissingExtraError",
    "MissingFileError",
    "MutationError",
    "NonFiniteError",
]


class HalfstepError(Exception):
    """The root of all errors that Halfstep raises.

    >>> import halfstep as hs
    >>> try:
    ...     hs.int8.within(-300, 100)
    ... except hs.HalfstepError as error:
    ...     print(error)
    int8 holds [-128, 127], so it cannot be narrowed to [-300, 100]: choose bounds inside it
    """


class ArgumentError(HalfstepError, ValueError):
    """A value that is not allowed; the text names it, the allowed range and the way out.

    >>> import halfstep as hs
    >>> issubclass(hs.ArgumentError, ValueError)
    True
    """


class NonFiniteError(ArgumentError):
    """NaN where a number is needed.

    >>> import halfstep as hs, torch
    >>> try:
    ...     hs.quantize(torch.tensor([1.0, float("nan")]), hs.int8)
    ... except hs.NonFiniteError as error:
    ...     print(str(error).split(":")[0])
    x holds 1 NaN in 2 values
    """


class GranularityError(ArgumentError):
    """A question or a view that does not fit the granularity of a quantized tensor.

    >>> import halfstep as hs, torch
    >>> try:
    ...     hs.quantize(torch.ones(2, 3), hs.int8).q_per_channel_axis()
    ... except hs.GranularityError as error:
    ...     print(str(error).split(":")[0])
    q_per_channel_axis() asks for a channel axis, but this tensor is quantized per tensor
    """


class ArgumentTypeError(HalfstepError, TypeError):
    """A value of the wrong type.

    >>> import halfstep as hs
    >>> issubclass(hs.ArgumentTypeError, TypeError)
    True
    """


class FallbackError(HalfstepError, RuntimeError):
    """An op would dequantize its input inside ``hs.no_fallback()``.

    >>> import halfstep as hs, torch
    >>> with hs.no_fallback():
    ...     try:
    ...         hs.quantize(torch.ones(2), hs.int8).exp()
    ...     except hs.FallbackError as error:
    ...         print(str(error).split(":")[0])
    aten.exp has no integer form
    """


class MutationError(HalfstepError, RuntimeError):
    """An in-place change of a quantized tensor, which would be lost.

    >>> import halfstep as hs, torch
    >>> try:
    ...     hs.quantize(torch.ones(2), hs.int8).add_(1)
    ... except hs.MutationError as error:
    ...     print(str(error).split(":")[0])
    aten.add_ would change a quantized tensor in place
    """


class FileFormatError(HalfstepError, ValueError):
    """A file that is truncated, corrupt, hostile, or not of a kind that Halfstep reads.

    >>> import halfstep as hs
    >>> issubclass(hs.FileFormatError, ValueError)
    True
    """


class MissingFileError(FileFormatError, FileNotFoundError):
    """A file that is not there.

    >>> import halfstep as hs
    >>> try:
    ...     hs.load_tensors("no-such-file.pt")
    ... except FileNotFoundError as error:
    ...     print(str(error).split(": give")[0])
    no-such-file.pt: there is no such file
    """


class MissingExtraError(HalfstepError, ImportError):
    """An optional package is needed and not installed; the text names the extra.

    >>> import halfstep as hs
    >>> issubclass(hs.MissingExtraError, ImportError)
    True
    """


class HalfstepWarning(UserWarning):
    """The category of every warning that Halfstep gives.

    >>> import halfstep as hs
    >>> issubclass(hs.HalfstepWarning, UserWarning)
    True
    """
