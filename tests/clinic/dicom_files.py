"""DICOM files of cases to triage: small phantoms with side and projection in their tags."""

from dataclasses import replace
from pathlib import Path

from trust_cache.synthetic.phantom import PhantomSettings, draw_anatomy, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Encoding, Tags, broken_bytes, mammogram_bytes

PROJECTIONS = ("L-CC", "L-MLO", "R-CC", "R-MLO")
ENCODING = Encoding(12)


def tags_of(case: str, name: str, image: str = "1", **changes: object) -> Tags:
    side, projection = name.split("-")
    tags = Tags(
        patient_id=f"patient {case}",
        laterality=side,
        view_position=projection,
        unique=(f"study {case}", name, image),
    )
    return replace(tags, **changes)  # type: ignore[arg-type]


def content(
    case: int, name: str, *, broken: str | None = None, tags: Tags | None = None, rows: int = 125
) -> bytes | None:
    """A phantom of one sided projection; the same arguments give the same bytes."""
    side, projection = name.split("-")
    settings = PhantomSettings(
        rows=rows,
        columns=rows * 4 // 5,
        laterality=side,
        projection=projection if projection in ("CC", "MLO") else "CC",
        anatomy=draw_anatomy((7, case)),
        lesion_contrast=0.0,
    )
    phantom = draw_phantom(settings, (case, *name.encode()))
    chosen = tags or tags_of(str(case), name)
    if broken is not None:
        return broken_bytes(broken, phantom, ENCODING, chosen)
    return mammogram_bytes(phantom, ENCODING, chosen)


def write_case(folder: Path, case: int, names: tuple[str, ...] = PROJECTIONS) -> Path:
    """A complete case in a folder of its own."""
    place = folder / f"{case:04d}"
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = content(case, name)
        assert found is not None
        (place / f"{name}.dcm").write_bytes(found)
    return place
