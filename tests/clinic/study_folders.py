"""Small studies of every kind that a hospital folder may hold, and how each must be decided."""

import os
import socket
import stat
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from pydicom import Dataset
from pydicom.sequence import Sequence

from tests.clinic.dicom_files import ENCODING, PROJECTIONS, content, tags_of, write_case
from tests.images.alterations import ALTERATIONS
from trust_cache.manifest.dicom_headers import HARMLESS, PROCESSING
from trust_cache.synthetic.phantom import PhantomSettings, draw_phantom
from trust_cache.synthetic.synthetic_dicom import Tags, file_bytes, make_dataset, stored_pixels

Study = Callable[[Path, int], object]
UNREADABLE = "unreadable"  # the name of the folder that a test makes unreadable


def code(value: str, *modifiers: str) -> Dataset:
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = value, "SCT", "sentinel"
    if modifiers:
        item.ViewModifierCodeSequence = Sequence([code(modifier) for modifier in modifiers])
    return item


def codes(*items: Dataset) -> Sequence:
    return Sequence(items)


def put(
    place: Path, case: int, name: str, file: str | None = None, image: str = "1", **elements: object
) -> Path:
    """Write an image of a case whose header has these elements; None leaves one out."""
    known = {"ViewPosition": "view_position", "ImageLaterality": "laterality", "PatientID": "patient_id"}
    own = {known[word]: value for word, value in elements.items() if word in known}
    further = tuple((word, value) for word, value in elements.items() if word not in known)
    tags = tags_of(str(case), name, image, further=further, **own)
    path = place / (file or f"{name}.dcm")
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom names invalid values
        path.write_bytes(_picture(case, name, tags, image))
    return path


def _picture(case: int, name: str, tags: Tags, image: str) -> bytes:
    shown = name if image == "1" else f"{name[:2]}CC"
    return content(case if image == "1" else 5000 + case, shown, tags=tags) or b""


def with_header(name: str = "R-CC", **elements: object) -> Study:
    """A whole study in which one image has these elements."""
    return lambda place, case: put(place, case, name, **elements)


def with_all(**elements: object) -> Study:
    """A whole study in which every image has these elements."""
    return lambda place, case: [put(place, case, name, **elements) for name in PROJECTIONS]


def plain_object(place: Path, case: int, sop_class: str, file: str) -> None:
    """An object of the study without an image."""
    dataset = Dataset()
    pixels = stored_pixels(draw_phantom(PhantomSettings(100, 100)), ENCODING)
    whole = make_dataset(pixels, ENCODING, tags_of(str(case), "L-CC", file))
    for word in ("StudyInstanceUID", "SOPInstanceUID", "PatientID", "PatientName"):
        setattr(dataset, word, getattr(whole, word))
    dataset.SOPClassUID = sop_class
    (place / file).write_bytes(file_bytes(dataset, "explicit"))


def beside(*names: str) -> Study:
    """Harmless objects by name."""
    found = {name: uid for uid, name in HARMLESS.items()}
    return lambda place, case: [
        plain_object(place, case, found[name], f"{number}.dcm") for number, name in enumerate(names)
    ]


def raw_copies(place: Path, case: int, names: Iterable[str] = PROJECTIONS, times: int = 1) -> None:
    for name in names:
        for number in range(times):
            put(place, case, name, f"raw{number} {name}.dcm", f"raw{number}", SOPClassUID=PROCESSING)


def everything_beside(place: Path, case: int) -> None:
    beside(*dict.fromkeys(HARMLESS.values()))(place, case)
    raw_copies(place, case)


def moved(where: str) -> Study:
    """One image of the study at another place of its folder."""

    def move(place: Path, _case: int) -> None:
        target = place / where
        target.parent.mkdir(parents=True, exist_ok=True)
        (place / "R-CC.dcm").rename(target)

    return move


def linked_file(place: Path, _case: int) -> None:
    store = place.parent.parent / f"store {place.name}"
    store.mkdir()
    (place / "R-CC.dcm").rename(store / "object")
    (place / "R-CC.dcm").symlink_to(store / "object")


def linked_folder(place: Path, case: int) -> None:
    store = place.parent.parent / f"store {place.name}"
    put(store, case, "R-XCCL")
    (place / "more").symlink_to(store)


def unreadable_folder(place: Path, case: int) -> None:
    put(place / UNREADABLE, case, "R-XCCL")


def unreadable_file(place: Path, _case: int) -> None:
    (place / "more.dcm").symlink_to("/proc/self/mem")  # whatever reads it gets an error, root too


def further(where: str) -> Study:
    """One more image, of a projection that is not expected."""
    return lambda place, case: put(place, case, "R-XCCL", where)


def text_file(name: str, text: bytes) -> Study:
    return lambda place, _case: (place / name).write_bytes(text)


def make_socket(place: Path, _case: int) -> None:
    here = Path.cwd()
    os.chdir(place)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")
    finally:
        os.chdir(here)


def make_device(place: Path, _case: int) -> None:
    try:
        os.mknod(place / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:  # only root may
        os.mkfifo(place / "device")


def only_raw(names: Iterable[str]) -> Study:
    def replace(place: Path, case: int) -> None:
        for name in names:
            put(place, case, name, SOPClassUID=PROCESSING)

    return replace


def equal_pixels(place: Path, case: int) -> None:
    """The same pixels in all four images, mirrored where the header says so."""
    for name in PROJECTIONS:
        shown = "L-CC" if name[0] == "L" else "R-CC"
        tags = tags_of(str(case), name)
        settings = PhantomSettings(125, 100, laterality=shown[0], projection="CC")
        pixels = stored_pixels(draw_phantom(settings, case), ENCODING)
        (place / f"{name}.dcm").write_bytes(file_bytes(make_dataset(pixels, ENCODING, tags), "explicit"))


def altered(name: str) -> Study:
    def alter(place: Path, case: int) -> None:
        settings = PhantomSettings(250, 200, laterality="R", projection="CC")
        pixels = stored_pixels(draw_phantom(settings, case), ENCODING)
        dataset = make_dataset(pixels, ENCODING, tags_of(str(case), "R-CC"))
        ALTERATIONS[name](dataset)
        (place / "R-CC.dcm").write_bytes(file_bytes(dataset, "explicit"))

    return alter


def two_women(place: Path, case: int) -> None:
    for name in PROJECTIONS:
        put(place, case, name, PatientID="", PatientName=f"Woman^{name[0]}")


def broken_meta(place: Path, case: int) -> None:
    path = put(place, case, "R-CC")
    path.write_bytes(path.read_bytes()[:200])


def one_for_another(place: Path, _case: int) -> None:
    (place / "L-MLO.dcm").unlink()
    (place / "L-MLO.dcm").symlink_to(place / "L-CC.dcm")


def copied(place: Path, _case: int) -> None:
    (place / "copy.dcm").write_bytes((place / "L-CC.dcm").read_bytes())


DISMISSED: dict[str, Study] = {
    "plain": lambda _place, _case: None,
    **{name: beside(name) for name in dict.fromkeys(HARMLESS.values())},
    "raw copies": raw_copies,
    "reports, states and raw copies": everything_beside,
    "view code": with_header(ViewPosition=None, ViewCodeSequence=codes(code("399162004"))),
    "former view code": with_header(ViewPosition=None, ViewCodeSequence=codes(code("R-10242"))),
    "view code that agrees": with_header(ViewCodeSequence=codes(code("399162004"))),
    "Fujifilm": with_header(ViewPosition=None, AcquisitionDeviceProcessingDescription="MAMMO,RCC"),
    "Laterality alone": with_header(ImageLaterality=None, Laterality="R"),
    "small letters": with_header(ViewPosition="cc"),
    "body part": with_all(BodyPartExamined="BREAST", AnatomicRegionSequence=codes(code("76752008"))),
    "body part with its side": with_header(
        BodyPartExamined="R BREAST", AnatomicRegionSequence=codes(code("73056007"))
    ),
    "presentation intent": with_all(PresentationIntentType="FOR PRESENTATION"),
    "orientation": with_header("R-MLO", PatientOrientation=["P", "FL"]),
    "contact magnification": with_header(EstimatedRadiographicMagnificationFactor="1.07"),
    "plain descriptions": with_header(
        SeriesDescription="R CC VIEW, tomosynthesis combo", DerivationDescription="BREASTS VIEW"
    ),
    "text": text_file("README", b"These are images.\n"),
    "table": text_file("list.csv", b"a,b\n1,2\n"),
    "file manager": text_file(".DS_Store", b"\0\1"),
    "dot-file of the study": moved(".R-CC.dcm"),
    "dot-folder of the study": moved(".hidden/R-CC.dcm"),
    "folders of series": moved("series 4/R-CC.dcm"),
    "no suffix": moved("IM0004"),
    "link to a file": linked_file,
    "repeated view": lambda place, case: put(place, case, "R-CC", "again.dcm", "2"),
}
# The words that the reason must have.
REVIEWED: dict[str, tuple[Study, str]] = {
    "linked folder": (linked_folder, "a link to a folder"),
    "dangling link": (lambda place, _: (place / "lost.dcm").symlink_to(place / "gone"), "a link to nothing"),
    "pipe": (lambda place, _: os.mkfifo(place / "pipe"), "a pipe"),
    "socket": (make_socket, "a socket"),
    "device": (make_device, "not a file"),
    "unreadable folder": (unreadable_folder, "the folder cannot be read"),
    "further dot-file": (further(".more.dcm"), "unexpected projection R-XCCL"),
    "further in a dot-folder": (further(".hidden/more"), "unexpected projection R-XCCL"),
    "broken dot-file": (text_file(".more.dcm", b"\0" * 300), "not a DICOM file"),
    "raw alone": (only_raw(["R-CC"]), "presentation-intent: the image is FOR PROCESSING"),
    "all raw": (only_raw(PROJECTIONS), "presentation-intent"),
    "more raw than shown": (lambda place, case: raw_copies(place, case, ["R-CC"], 2), "presentation-intent"),
    "raw copy of another exposure": (
        lambda place, case: put(
            place,
            case,
            "R-CC",
            "raw.dcm",
            "raw",
            SOPClassUID=PROCESSING,
            EstimatedRadiographicMagnificationFactor="1.8",
        ),
        "presentation-intent",
    ),
    "raw copy of another woman": (
        lambda place, case: put(
            place, case, "R-CC", "raw.dcm", "raw", SOPClassUID=PROCESSING, PatientID="somebody else"
        ),
        "name different patients",
    ),
    "raw intent": (with_header(PresentationIntentType="FOR PROCESSING"), "presentation-intent"),
    "other intent": (with_header(PresentationIntentType="SOMETHING"), "another intent"),
    "ultrasound": (
        with_header(SOPClassUID="1.2.840.10008.5.1.4.1.1.6.1"),
        "the object's class is ultrasound",
    ),
    "secondary capture": (with_header(SOPClassUID="1.2.840.10008.5.1.4.1.1.7"), "secondary capture"),
    "computed radiography": (with_header(SOPClassUID="1.2.840.10008.5.1.4.1.1.1"), "computed radiography"),
    "tomosynthesis": (with_header(SOPClassUID="1.2.840.10008.5.1.4.1.1.13.1.3"), "breast tomosynthesis"),
    "unknown class": (with_header(SOPClassUID="1.2.3.4"), "of another kind"),
    "report with an image": (with_header(SOPClassUID="1.2.840.10008.5.1.4.1.1.88.67"), "sop-class"),
    "modality": (with_header(Modality="US"), "image-kind: expected the modality MG"),
    "magnification": (
        with_header(ViewCodeSequence=codes(code("399162004", "399163009"))),
        "a modified view: magnification",
    ),
    "spot compression": (with_header(ViewModifierCodeSequence=codes(code("399055006"))), "spot compression"),
    "implant displaced": (
        with_header(ViewCodeSequence=codes(code("399162004", "R-102D5"))),
        "implant displaced",
    ),
    "unknown modifier": (with_header(ViewModifierCodeSequence=codes(code("1"))), "another modifier"),
    "magnification factor": (
        with_header(EstimatedRadiographicMagnificationFactor="1.8"),
        "magnification by 1.8, limit 1.3",
    ),
    "partial view": (with_header(PartialView="YES"), "partial view"),
    "part by its code": (with_header(PartialViewCodeSequence=codes(code("255551008"))), "partial view"),
    "quality control": (with_header(QualityControlImage="YES"), "quality control"),
    "quality control beside a breast": (with_header(QualityControlImage="BOTH"), "quality control"),
    "synthesized": (
        with_header(ImageType=["DERIVED", "PRIMARY", "GENERATED_2D"]),
        "computed from tomosynthesis",
    ),
    **{
        f"named {text}": (with_header(**{element: text}), f"computed from tomosynthesis ({element})")
        for element, text in (
            ("SeriesDescription", "R CC C-View"),
            ("SeriesDescription", "RCC Intelligent 2D"),
            ("SeriesDescription", "R CC V-Preview"),
            ("SeriesDescription", "Insight 2D RCC"),
            ("AcquisitionDeviceProcessingDescription", "S-View RCC"),
            ("SeriesDescription", "RCC_synthesized"),
            ("DerivationDescription", "Synthetic mammogram"),
        )
    },
    "frames": (with_header(NumberOfFrames=2), "multi-frame"),
    "knee": (with_header(BodyPartExamined="KNEE"), "body-part: expected the breast"),
    "another region": (with_header(AnatomicRegionSequence=codes(code("72696002"))), "body-part"),
    "view code against view": (
        with_header(ViewCodeSequence=codes(code("399368009"))),
        "different projections",
    ),
    "two view codes": (
        with_header(ViewPosition=None, ViewCodeSequence=codes(code("399162004"), code("399368009"))),
        "different projections",
    ),
    "Fujifilm against view": (
        with_header(AcquisitionDeviceProcessingDescription="RMLO"),
        "different projections",
    ),
    "sides that differ": (
        with_header(Laterality="L"),
        "laterality: elements of the header name different sides",
    ),
    **{
        f"side of {name}": (with_header(**{name: value}), "laterality: elements of the header name different")
        for name, value in (
            ("BodyPartExamined", "LEFT BREAST"),
            ("AnatomicRegionSequence", codes(code("80248007"))),
            ("AcquisitionDeviceProcessingDescription", "MAMMO, L-CC"),
        )
    },
    **{
        f"several values of {name}": (with_header(**{name: list(values)}), words)
        for name, words, *values in (
            ("ViewPosition", "projection: the header names a projection that is not known", "CC", "MLO"),
            ("ImageLaterality", "laterality: expected L or R", "R", "L"),
            ("PresentationIntentType", "another intent", "FOR PRESENTATION", "FOR PROCESSING"),
            ("BodyPartExamined", "body-part", "BREAST", "KNEE"),
            ("PartialView", "partial view", "NO", "YES"),
            ("EstimatedRadiographicMagnificationFactor", "an unknown magnification", "1.0", "1.8"),
        )
    },
    "both sides": (with_header(ImageLaterality="B"), "laterality: expected L or R in the header"),
    "no side and another view": (
        with_header(ImageLaterality=None, ViewCodeSequence=codes(code("399368009"))),
        "projection: elements of the header name different projections",
    ),
    "no side and magnified": (
        with_header(ImageLaterality=None, EstimatedRadiographicMagnificationFactor="1.8"),
        "view-modifier: the image is a modified view: magnification",
    ),
    "no side": (with_header(ImageLaterality=None), "Name side and projection in a manifest (--manifest)"),
    "no view": (with_header(ViewPosition=None), "unknown projection R-?"),
    "unknown view": (with_header(ViewPosition="SENTINEL"), "a projection that is not known"),
    "orientation": (
        with_header("R-MLO", PatientOrientation=["P", "HL"]),
        "by PatientOrientation the image is upside down",
    ),
    "another projection": (further("more.dcm"), "unexpected projection R-XCCL"),
    "missing projection": (lambda place, _: (place / "R-CC.dcm").unlink(), "missing projection R-CC"),
    "equal pixels": (equal_pixels, "same-picture: the same picture as image"),
    "a view that links to another": (one_for_another, "same-image"),
    "copy": (copied, "same-image"),
    "two women": (two_women, "patient: the images of the case name different patients"),
    "nobody": (with_all(PatientID="", PatientName=""), "patient: no image of the case names a patient"),
    "another patient": (with_header(PatientID="somebody else"), "name different patients"),
    "one without a patient": (with_header(PatientID=""), "name different patients"),
    "another birth date": (with_header(PatientBirthDate="19500101"), "name different patients"),
    "no study": (with_header(StudyInstanceUID=""), "no valid StudyInstanceUID"),
    "invalid study": (with_header(StudyInstanceUID="1.2.SENTINEL"), "no valid StudyInstanceUID"),
    "empty file": (text_file("more.dcm", b""), "the file is empty"),
    "text with an image's name": (text_file("more.dcm", b"a text"), "not a DICOM file"),
    "picture": (text_file("more.jpg", b"\xff\xd8\xff\xe0" + bytes(range(256)) * 8), "not a DICOM file"),
    "archive": (text_file("more.zip", b"PK\x03\x04" + bytes(range(256)) * 8), "not a DICOM file"),
    "half a header": (broken_meta, "unassignable entry"),
    "excess pixel data": (altered("excess pixel data"), "64 bytes of pixel data too many, limit 1"),
    "chest wall black": (altered("chest wall third black"), "constant-band"),
    "padding over tissue": (altered("padding over the brightest"), "padding: padding blacks out"),
    "mirrored": (altered("mirrored"), "breast-side"),
    "inverted interpretation": (altered("inverted interpretation"), "mask: the border is inside the tissue"),
    "negative slope": (altered("negative slope"), "mask: the border is inside the tissue"),
    "two grey levels": (altered("window width 1"), "grey-levels: the breast has 0.0 effective grey levels"),
    "one grey level": (altered("window width 1e9"), "mask: "),
    "swapped bytes": (altered("swapped bytes"), "mask: "),
    "one byte lost": (altered("one byte lost"), "row-shift"),
    "last half zero": (altered("last half zero"), "constant-band: a constant band of 50%"),
    "unreadable file": (unreadable_file, "unassignable entry"),
}


def write_studies(folder: Path) -> dict[str, str]:
    """Write every study into a folder of its own; return the name of each by its folder."""
    names = {}
    studies = {f"d {name}": study for name, study in DISMISSED.items()}
    studies |= {f"r {name}": study for name, (study, _) in REVIEWED.items()}
    for number, (name, study) in enumerate(studies.items()):
        place = write_case(folder, number)
        study(place, number)
        names[place.name] = name
    return names
