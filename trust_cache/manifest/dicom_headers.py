"""What a DICOM object of a mammography study is, from the values of a few header elements.

`classify` decides it without touching a file. The words of a header never reach a message: only words from
the tables here do. The identity of a patient is compared by digests that exist in memory only.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trust_cache.manifest.picture_checks import finding

# PS3.3 C.7.1.1 (patient), C.7.2.1 (study), C.12.1 (SOP common), C.8.11.7 (mammography image), C.8.11.5.
IDENTITY = ("PatientID", "PatientName", "PatientBirthDate")
TEXTS = (
    *("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "Modality", "PresentationIntentType"),
    *("ImageType", "BodyPartExamined", "ImageLaterality", "Laterality", "ViewPosition"),
    *("AcquisitionDeviceProcessingDescription", "PartialView", "QualityControlImage", "PatientOrientation"),
    *("EstimatedRadiographicMagnificationFactor", "NumberOfFrames", "Rows"),
    *("SeriesDescription", "DerivationDescription"),
)
SEQUENCES = (
    *("ViewCodeSequence", "ViewModifierCodeSequence", "PartialViewCodeSequence"),
    "AnatomicRegionSequence",
)
HEADER_ELEMENTS = (*IDENTITY, *TEXTS, *SEQUENCES)

PRESENTATION = "1.2.840.10008.5.1.4.1.1.1.2"  # Digital Mammography X-Ray Image Storage - For Presentation
PROCESSING = "1.2.840.10008.5.1.4.1.1.1.2.1"
# PS3.4 annex B: objects without an image of their own.
HARMLESS = {
    "1.2.840.10008.1.3.10": "DICOMDIR",
    **dict.fromkeys((f"1.2.840.10008.5.1.4.1.1.11.{n}" for n in range(1, 5)), "presentation state"),
    **dict.fromkeys((f"1.2.840.10008.5.1.4.1.1.88.{n}" for n in (11, 22, 33, 34)), "structured report"),
    "1.2.840.10008.5.1.4.1.1.88.50": "CAD report",
    "1.2.840.10008.5.1.4.1.1.88.59": "key object selection",
    **dict.fromkeys((f"1.2.840.10008.5.1.4.1.1.88.{n}" for n in (67, 73, 76)), "dose report"),
    "1.2.840.10008.5.1.4.1.1.104.1": "PDF",
}
_CLASSES = {
    "1.2.840.10008.5.1.4.1.1.1": "computed radiography",
    "1.2.840.10008.5.1.4.1.1.1.1": "digital X-ray",
    "1.2.840.10008.5.1.4.1.1.1.1.1": "digital X-ray for processing",
    PROCESSING: "digital mammography for processing",
    "1.2.840.10008.5.1.4.1.1.3.1": "ultrasound multi-frame",
    "1.2.840.10008.5.1.4.1.1.4": "MR",
    "1.2.840.10008.5.1.4.1.1.6.1": "ultrasound",
    "1.2.840.10008.5.1.4.1.1.7": "secondary capture",
    **dict.fromkeys((f"1.2.840.10008.5.1.4.1.1.7.{n}" for n in range(1, 5)), "multi-frame secondary capture"),
    "1.2.840.10008.5.1.4.1.1.13.1.3": "breast tomosynthesis",
    "1.2.840.10008.5.1.4.1.1.13.1.4": "breast projections for presentation",
    "1.2.840.10008.5.1.4.1.1.13.1.5": "breast projections for processing",
    "1.2.840.10008.5.1.4.1.1.66": "raw data",
}
# PS3.16 CID 4014, in SNOMED CT and in its former codes.
_VIEW_CODES = {
    **dict.fromkeys(("399162004", "R-10242"), "CC"),
    **dict.fromkeys(("399368009", "R-10226"), "MLO"),
    **dict.fromkeys(("399260004", "R-10224"), "ML"),
    **dict.fromkeys(("399352003", "R-10228"), "LM"),
    **dict.fromkeys(("399099002", "R-10230"), "LMO"),
    **dict.fromkeys(("399196006", "R-10244"), "FB"),
    **dict.fromkeys(("399188001", "R-102D0"), "SIO"),
    **dict.fromkeys(("441555000", "R-40AAA"), "ISO"),
    **dict.fromkeys(("399192008", "399265003", "R-1024A", "Y-X1770"), "XCCL"),
    **dict.fromkeys(("399101009", "R-1024B", "Y-X1771"), "XCCM"),
}
PROJECTIONS = frozenset(
    {*_VIEW_CODES.values(), "XCC", "AT", "AX", "CV", "RL", "RM", "TAN", "ID", "CCID", "MLOID"}
)
# PS3.16 CID 4015, in SNOMED CT and in its former codes.
_MODIFIERS = {
    **dict.fromkeys(("399163009", "R-102D6"), "magnification"),
    **dict.fromkeys(("399055006", "R-102D7"), "spot compression"),
    **dict.fromkeys(("399209000", "R-102D5"), "implant displaced"),
    **dict.fromkeys(("399011000", "R-102D1"), "axillary tail"),
    **dict.fromkeys(("399161006", "R-102D2"), "cleavage"),
    **dict.fromkeys(("399110001", "R-102C2"), "tangential"),
}
# The left and the right breast, in SNOMED CT and in its former codes.
_SIDED_BREAST = {
    **dict.fromkeys(("80248007", "T-04030"), "L"),
    **dict.fromkeys(("73056007", "T-04020"), "R"),
}
# The breast, either and both.
_BREAST = frozenset({"76752008", "T-04000", "63762007", "T-04080", *_SIDED_BREAST})
# Units also write the side, and the examination for the part.
_BREAST_WORDS = frozenset({"BREAST", "BREASTS", "MAMMA", "MAMMO", "MAMMOGRAPHY"})
_SIDE_WORDS = {"L": "L", "LEFT": "L", "R": "R", "RIGHT": "R", "BOTH": None, "BILATERAL": None}
# PS3.3 C.8.11.7.1.4 and C.8.21: pictures that are computed from a tomosynthesis volume.
_COMPUTED = frozenset(
    {"GENERATED_2D", "TOMO_2D", "TOMO_PROJ", "TOMO", "TOMOSYNTHESIS", "VOLUME", "MAX_IP", "MIN_IP"}
)
# The makers' names: Hologic, GE, Siemens, Fujifilm, IMS Giotto; in descriptions, which units may change.
_COMPUTED_NAMES = re.compile(
    r"(?<![A-Z0-9])(?:[CSG][\s_-]?VIEW|V[\s_-]?PREVIEW|(?:INTELLIGENT|INSIGHT|GENERATED|SYN|TOMO)[\s_-]?2[\s_-]?D"
    r"|I2D|S2D|SYNTH(?!ESIS)\w*)(?![A-Z0-9])"
)
_DESCRIPTIONS = (
    "SeriesDescription",
    "AcquisitionDeviceProcessingDescription",
    "DerivationDescription",
    "ImageType",
)
# A projection with its side before it, as in RCC, R-CC and RIGHT CC.
_DEVICE_WORDS = re.compile(r"(?<![A-Z])(?:([LR])(?:EFT|IGHT)?[\W_]*)?(CC|MLO|ML|XCCL|XCCM)(?![A-Z])")
_MAGNIFIED = 1.3  # contact mammography has 1.0 to 1.15, magnification views 1.5 to 2
_UID = re.compile(r"[0-9.]{1,64}")

Kind = Literal["image", "raw", "harmless", "other"]


@dataclass(frozen=True)
class HeaderValues:
    """The header's values: texts by keyword, and the code values of each sequence."""

    texts: Mapping[str, tuple[str, ...]]
    codes: Mapping[str, tuple[str, ...]]

    def text(self, keyword: str) -> str:
        """Return an element's value in capitals, empty if there is none.

        Several values stay joined as they are in the file: the first alone could contradict the others.
        """
        return "\\".join(filter(None, (part.strip().upper() for part in self.texts.get(keyword, ()))))


@dataclass(frozen=True)
class ImageHeader:
    """What an object is, and the keys by which the images of a case must agree."""

    kind: Kind
    name: str = ""  # of a harmless object
    side: str | None = None
    projection: str | None = None
    study: str = ""  # StudyInstanceUID, empty if there is no valid one
    instance: str = field(default="", repr=False)
    patient: tuple[str, ...] = field(default=(), repr=False)  # digests of IDENTITY, empty where it is empty
    findings: tuple[str, ...] = ()


def classify(values: HeaderValues, file_class: str = "") -> ImageHeader:
    """Return what an object is; `file_class` is the class that the file meta information names."""
    sop_class = (values.text("SOPClassUID") or file_class).strip()
    keys = {
        "study": _valid_uid(values.text("StudyInstanceUID")),
        "instance": _valid_uid(values.text("SOPInstanceUID")),
        "patient": tuple(digest_identity(values.texts.get(name, ())) for name in IDENTITY),
    }
    if sop_class in HARMLESS and not values.text("Rows"):
        return ImageHeader("harmless", HARMLESS[sop_class], **keys)  # type: ignore[arg-type]
    side, of_side = _side(values)
    projection, of_projection = _projection(values)
    findings = (
        *_class_findings(sop_class, file_class, values),
        *_kind_findings(values),
        *_modifier_findings(values),
        *of_side,
        *of_projection,
    )
    raw = sop_class == PROCESSING and values.text("PresentationIntentType") in ("", "FOR PROCESSING")
    kind: Kind = "raw" if raw else "image" if sop_class == PRESENTATION else "other"
    return ImageHeader(kind, "", side, projection, **keys, findings=findings)  # type: ignore[arg-type]


def _valid_uid(text: str) -> str:
    return text if _UID.fullmatch(text) else ""


def digest_identity(texts: Iterable[str]) -> str:
    """Return a digest of an identifying text, equal for spellings that differ in case and separators."""
    text = " ".join(re.sub(r"[\^=\s]+", " ", part).strip().casefold() for part in texts).strip()
    return hashlib.sha256(text.encode(errors="replace")).hexdigest() if text else ""


def _class_findings(sop_class: str, file_class: str, values: HeaderValues) -> list[str]:
    found = []
    intent = values.text("PresentationIntentType")
    raw = sop_class == PROCESSING or intent == "FOR PROCESSING"
    if raw:
        words = "the image is FOR PROCESSING, and a model is certified on FOR PRESENTATION images"
        found.append(finding("presentation-intent", words))
    elif sop_class != PRESENTATION:
        kind = _CLASSES.get(sop_class, "of another kind" if sop_class else "not named in the header")
        found.append(finding("sop-class", f"expected a digital mammogram, the object's class is {kind}"))
    if intent not in ("", "FOR PRESENTATION", "FOR PROCESSING"):
        found.append(finding("presentation-intent", "expected FOR PRESENTATION, found another intent"))
    if file_class and sop_class and file_class != sop_class:
        found.append(finding("sop-class", "the header and the file meta information name different classes"))
    return found


def _kind_findings(values: HeaderValues) -> list[str]:
    found = []
    if values.text("Modality") not in ("", "MG"):
        found.append(finding("image-kind", "expected the modality MG, found another"))
    if (element := _computed_by(values)) is not None:
        found.append(finding("image-kind", f"the picture is computed from tomosynthesis ({element})"))
    frames = values.text("NumberOfFrames")
    if frames not in ("", "1"):
        found.append(finding("image-kind", "the object has several frames"))
    if values.text("QualityControlImage") not in ("", "NO"):  # YES or BOTH
        found.append(finding("image-kind", "the header says that it is a quality control image"))
    region = values.codes.get("AnatomicRegionSequence", ())
    if not _body_words(values) - set(_SIDE_WORDS) <= _BREAST_WORDS or not set(region) <= _BREAST:
        found.append(finding("body-part", "expected the breast, the header names another body part"))
    rows = [part.strip().upper() for part in values.texts.get("PatientOrientation", ())]
    if len(rows) > 1 and rows[1].startswith("H"):
        found.append(finding("orientation", "by PatientOrientation the image is upside down"))
    return found


def _body_words(values: HeaderValues) -> set[str]:
    return set(re.split(r"[\s_^,/-]+", values.text("BodyPartExamined"))) - {""}


def _computed_by(values: HeaderValues) -> str | None:
    """Return the element by which a picture is computed from a tomosynthesis volume; None if none says so."""
    if _COMPUTED & {part.strip().upper() for part in values.texts.get("ImageType", ())}:
        return "ImageType"
    return next(
        (
            name
            for name in _DESCRIPTIONS
            if any(_COMPUTED_NAMES.search(part.upper()) for part in values.texts.get(name, ()))
        ),
        None,
    )


def _modifier_findings(values: HeaderValues) -> list[str]:
    codes = values.codes.get("ViewModifierCodeSequence", ())
    names = [_MODIFIERS.get(code, "another modifier") for code in codes]
    if values.text("PartialView") not in ("", "NO") or values.codes.get("PartialViewCodeSequence"):
        names.append("partial view")
    try:
        factor = float(values.text("EstimatedRadiographicMagnificationFactor") or 1)
    except ValueError:  # several values
        factor = 1.0
        names.append("an unknown magnification")
    if factor >= _MAGNIFIED:
        names.append(f"magnification by {factor:g}, limit {_MAGNIFIED:g}")
    listed = ", ".join(dict.fromkeys(names))
    return [finding("view-modifier", f"the image is a modified view: {listed}")] if names else []


def _side(values: HeaderValues) -> tuple[str | None, list[str]]:
    """Return the side that all elements agree on."""
    named = {values.text(name) for name in ("ImageLaterality", "Laterality")} - {""}
    device_side, _ = _device_words(values)
    words = (_SIDE_WORDS.get(word) for word in _body_words(values))
    regions = (_SIDED_BREAST.get(code) for code in values.codes.get("AnatomicRegionSequence", ()))
    named |= {side for side in (device_side, *words, *regions) if side is not None}
    if len(named) > 1:
        return None, [finding("laterality", "elements of the header name different sides")]
    side = next(iter(named), None)
    if side in (None, "L", "R"):
        return side, []
    return None, [finding("laterality", "expected L or R in the header, found another side")]


def _projection(values: HeaderValues) -> tuple[str | None, list[str]]:
    """Return the projection that all elements agree on."""
    named: list[str | None] = []
    if text := values.text("ViewPosition"):
        plain = re.sub(r"[\s_-]", "", text)
        named.append(plain if plain in PROJECTIONS else None)
    named += [_VIEW_CODES.get(code) for code in values.codes.get("ViewCodeSequence", ())]
    _, device = _device_words(values)
    if device:
        named.append(device)
    if len(set(named)) > 1:
        words = "elements of the header name different projections, or one that is not known"
        return None, [finding("projection", words)]
    if named and named[0] is None:
        return None, [finding("projection", "the header names a projection that is not known")]
    return (named[0] if named else None), []


def _device_words(values: HeaderValues) -> tuple[str | None, str | None]:
    """Return side and projection from (0018,1400), where Fujifilm names the menu of the exposure."""
    found = _DEVICE_WORDS.findall(values.text("AcquisitionDeviceProcessingDescription"))
    sides, projections = {side for side, _ in found} - {""}, {projection for _, projection in found}
    single = len(projections) == 1
    return (
        next(iter(sides)) if single and len(sides) == 1 else None,
        next(iter(projections)) if single else None,
    )


def disagreements(
    headers: Mapping[str, tuple[str, ImageHeader]], *, named: bool
) -> dict[str, tuple[str, ...]]:
    """Return what is wrong with the images of cases together, by image; `headers` has case and header.

    The images of a case must be of one patient and one study, and no instance may occur twice. `named`: the
    cases come from the headers, so the headers must name the patients too.
    """
    found: dict[str, list[str]] = defaultdict(list)
    members: dict[str, list[str]] = defaultdict(list)
    instances: dict[str, list[str]] = defaultdict(list)
    for image, (case, header) in headers.items():
        members[case].append(image)
        if header.instance:
            instances[header.instance].append(image)
    for images in members.values():
        patients = Counter(headers[image][1].patient for image in images)
        studies = {headers[image][1].study for image in images}
        text = None
        if len(patients) > 1:
            text = finding("patient", "the images of the case name different patients")
        elif named and not any(next(iter(patients))):
            text = finding("patient", "no image of the case names a patient")
        for image in images:
            found[image] += [] if text is None else [text]
            if len(studies) > 1:
                found[image].append(finding("study", "the images of the case are of different studies"))
    for images in instances.values():
        for image in images if len(images) > 1 else ():
            others = ", ".join(sorted(set(images) - {image}))
            found[image].append(finding("same-image", f"the same SOPInstanceUID as image {others}"))
    return {image: tuple(texts) for image, texts in found.items() if texts}
