"""DICOM files of examinations to triage: small phantoms with the tags that tell views apart."""

from dataclasses import replace
from pathlib import Path

from trust_cache.images.phantom import PhantomSettings, draw_anatomy, draw_phantom
from trust_cache.images.synthetic_dicom import Encoding, Tags, broken_bytes, mammogram_bytes

VIEWS = ("L-CC", "L-MLO", "R-CC", "R-MLO")
ENCODING = Encoding(12)


def tags_of(case: str, view: str, image: str = "1", **changes: object) -> Tags:
    side, projection = view.split("-")
    tags = Tags(
        patient_id=f"patient {case}",
        laterality=side,
        view_position=projection,
        unique=(f"study {case}", view, image),
    )
    return replace(tags, **changes)  # type: ignore[arg-type]


def content(
    case: int, view: str, *, broken: str | None = None, tags: Tags | None = None, rows: int = 125
) -> bytes | None:
    """A phantom of one view; the same arguments give the same bytes."""
    side, projection = view.split("-")
    settings = PhantomSettings(
        rows=rows,
        columns=rows * 4 // 5,
        laterality=side,
        projection=projection if projection in ("CC", "MLO") else "CC",
        anatomy=draw_anatomy((7, case)),
        lesion_contrast=0.0,
    )
    phantom = draw_phantom(settings, (case, *view.encode()))
    chosen = tags or tags_of(str(case), view)
    if broken is not None:
        return broken_bytes(broken, phantom, ENCODING, chosen)
    return mammogram_bytes(phantom, ENCODING, chosen)


def write_examination(folder: Path, case: int, views: tuple[str, ...] = VIEWS) -> Path:
    """A whole examination in a folder of its own."""
    place = folder / f"{case:04d}"
    place.mkdir(parents=True, exist_ok=True)
    for view in views:
        found = content(case, view)
        assert found is not None
        (place / f"{view}.dcm").write_bytes(found)
    return place
