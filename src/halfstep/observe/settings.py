"""The settings of observers, checked: each refusal names the argument, its value and the range."""

from numbers import Real

from halfstep.errors import ArgumentError, ArgumentTypeError

POLICIES = ("raise", "ignore")


def check_share(value: object, name: str, most: float, what: str) -> float:
    """``value`` as a number above 0, up to ``most``; ``what`` it is, for the error's text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(
            f"{name}={value!r} is not a number: give one above 0, up to {most:g}"
        )
    number = float(value)
    if not 0 < number <= most:
        raise ArgumentError(f"{name}={number} is not {what}: allowed is above 0, up to {most:g}")
    return number


def check_policy(value: object) -> str:
    """``value`` as what to do with NaN and infinities."""
    if not isinstance(value, str) or value not in POLICIES:
        raise ArgumentError(f"nonfinite={value!r} is not a policy: use one of {POLICIES}")
    return value


def check_switch(value: object, name: str) -> bool:
    """``value`` as a bool."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name}={value!r} is not a bool: use True or False")
    return value
