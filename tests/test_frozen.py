"""Frozen dataclasses that load quickly behave as Python's own do: every question is put to both."""

import dataclasses
import inspect
import pickle
from functools import cached_property

import pytest

from npuscope.base import frozen


def classes(dataclass):
    """A family of classes with all that npuscope's have."""

    @dataclass(frozen=True)
    class Format:
        name: str
        files: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)

    @dataclass(frozen=True)
    class Reader(Format):
        read: str
        notes: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        hidden: int = dataclasses.field(default=7, repr=False)
        sizes: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)

        def __post_init__(self):
            if self.read == "nothing":
                raise ValueError("reads nothing")

        @cached_property
        def loud(self):
            return self.read.upper()

    @dataclass(frozen=True, eq=False, repr=False)
    class Alone:
        one: int = 1

    return Format, Reader, Alone


OURS, PYTHONS = classes(frozen.dataclass), classes(dataclasses.dataclass)


def told(ask, family):
    """The answer, or the kind of error."""
    try:
        return ask(*family)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize(
    "ask",
    [
        lambda f, r, a: vars(r("a", "b")),
        lambda f, r, a: vars(r("a", read="b", files=("c",), hidden=1)),
        lambda f, r, a: r("a"),
        lambda f, r, a: r("a", "b", {}, 7, {}, "too many"),
        lambda f, r, a: r("a", "b", name="twice"),
        lambda f, r, a: r("a", wrong="b"),
        lambda f, r, a: r("a", "nothing"),
        lambda f, r, a: repr(r("a", "b")).rpartition(".")[2],
        lambda f, r, a: r("a", "b", {"x": 1}) == r("a", "b"),
        lambda f, r, a: hash(r("a", "b", {"x": 1})) == hash(r("a", "b")),
        lambda f, r, a: hash(r("a", "b", sizes={"x": 1})) == hash(r("a", "b")),
        lambda f, r, a: r("a", "b", sizes={"x": 1}) == r("a", "b"),
        lambda f, r, a: r("a", "b") == r("a", "c"),
        lambda f, r, a: f("a") == r("a", "b"),
        lambda f, r, a: a() == a(),
        lambda f, r, a: repr(a()).startswith("<"),
        lambda f, r, a: r("a", "b").notes is r("a", "b").notes,
        lambda f, r, a: setattr(r("a", "b"), "name", "c"),
        lambda f, r, a: delattr(r("a", "b"), "name"),
        lambda f, r, a: dataclasses.asdict(dataclasses.replace(r("a", "b"), name="c")),
        lambda f, r, a: (r("a", "b").loud, r.hidden),
        lambda f, r, a: [(p.name, p.kind) for p in inspect.signature(r).parameters.values()],
        lambda f, r, a: [one.name for one in dataclasses.fields(r)],
    ],
)
def test_as_pythons_own(ask):
    assert told(ask, OURS) == told(ask, PYTHONS)


@frozen.dataclass(frozen=True)
class Sent:
    what: str
    more: tuple[int, ...] = ()


def test_goes_to_another_process():
    assert pickle.loads(pickle.dumps(Sent("a", (1,)))) == Sent("a", (1,))


def test_pythons_own_is_made_from_it_as_plugins_do():
    @dataclasses.dataclass(frozen=True)
    class Further(Sent):
        mine: int = 3

    one = dataclasses.replace(Further("a", (1,)), mine=4)
    assert (vars(one), one == Further("a", (1,), 4)) == ({"what": "a", "more": (1,), "mine": 4}, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.what = "b"  # type: ignore[misc]


def test_says_what_is_wrong():
    with pytest.raises(TypeError, match="missing a required argument: 'what'"):
        Sent()  # type: ignore[call-arg]
