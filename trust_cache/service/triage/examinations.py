"""An examination before it is scored: its pictures, and whether they are what an examination must have."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trust_cache.base.errors import InputError

STANDARD = ("L-CC", "L-MLO", "R-CC", "R-MLO")


@dataclass(frozen=True)
class Picture:
    """One image file of an examination; `problem` is what is wrong with it before it is even decoded."""

    image_id: str
    location: str
    laterality: str | None
    projection: str | None
    problem: str | None = None

    @property
    def view(self) -> str:
        """The picture's view, such as L-CC, with a question mark for what is not known."""
        return f"{self.laterality or '?'}-{self.projection or '?'}"


@dataclass(frozen=True)
class Examination:
    """The pictures of one case, and what keeps it from ever being dismissed."""

    case_id: str
    pictures: tuple[Picture, ...]
    problems: tuple[str, ...] = field(default=())


def parse_required(text: str) -> tuple[str, ...]:
    """Read the views that make an examination complete: `L-CC,L-MLO,R-CC,R-MLO`."""
    views = tuple(part.strip().upper() for part in text.split(","))
    for view in views:
        side, dash, projection = view.partition("-")
        if side not in ("L", "R") or not dash or not projection.isalnum():
            raise InputError(
                f"require: expected views such as {','.join(STANDARD)}, found {view or 'an empty one'!r}"
            )
    if len(set(views)) < len(views):
        raise InputError(f"require: expected different views, found {text!r}")
    return views


def check_views(examination: Examination, required: Sequence[str]) -> tuple[str, ...]:
    """Return what is wrong with an examination's pictures as a set: missing, unknown and unexpected views.

    Several pictures of one required view are in order: the highest score counts. The same file twice is not:
    somebody put the examination together by mistake.
    """
    views = [picture.view for picture in examination.pictures]
    problems = [f"missing view {view}" for view in required if view not in views]
    problems += [
        f"{'unknown' if '?' in view else 'unexpected'} view {view}: image {picture.image_id}"
        for picture, view in zip(examination.pictures, views, strict=True)
        if view not in required
    ]
    twice = Counter(picture.location for picture in examination.pictures)
    problems += [f"the same file twice: {place}" for place, count in twice.items() if count > 1]
    return tuple(problems)


def with_problems(examination: Examination, required: Sequence[str]) -> Examination:
    """Return the examination with everything that is known to be wrong before decoding."""
    own = [f"image {p.image_id}: {p.problem}" for p in examination.pictures if p.problem is not None]
    # Where no file could be read there is nothing to say of views.
    unreadable = bool(own) and len(own) == len(examination.pictures)
    found = (*examination.problems, *own, *(() if unreadable else check_views(examination, required)))
    return Examination(examination.case_id, examination.pictures, tuple(dict.fromkeys(found)))


def group_pictures(pictures: Iterable[tuple[str, Picture]]) -> list[Examination]:
    """Return the examinations of (case_id, picture) pairs, by case_id, their pictures by image_id."""
    cases: dict[str, list[Picture]] = {}
    for case_id, picture in pictures:
        cases.setdefault(case_id, []).append(picture)
    return [
        Examination(case_id, tuple(sorted(found, key=lambda picture: picture.image_id)))
        for case_id, found in sorted(cases.items())
    ]
