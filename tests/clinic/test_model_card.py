"""The model card: every number is in the certificate, terms of data travel, a person's part is left open."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.clinic.material import a_certificate, a_model, two_halves
from tests.heads.cohorts import write_cohort
from trust_cache.base.errors import InputError
from trust_cache.base.text_tables import percent
from trust_cache.cache.cache_reader import open_cache
from trust_cache.cache.verify_cache import cache_info
from trust_cache.certificate.certified_folder import SubgroupRow
from trust_cache.certificate.evidence import Options, gather
from trust_cache.certificate.points import POINT_KEYS
from trust_cache.clinic.export_model import export_model
from trust_cache.clinic.model_card import render_card
from trust_cache.clinic.model_folder import CARD, read_model, write_model
from trust_cache.heads.fit import fit_heads
from trust_cache.heads.head_settings import presets
from trust_cache.heads.run_folder import RunFolder
from trust_cache.manifest.data_terms import DataTerms, describe_terms, sharing_warnings, terms_of
from trust_cache.report.provenance import provenance
from trust_cache.statistics.confidence_sequences import prior_of

FORBIDDEN = DataTerms(
    dataset="x", title="Set X", source="there", licence="theirs", features="forbidden", weights="forbidden"
)


def test_every_number_in_the_card_is_found_in_the_certificate() -> None:
    """Each number, as printed, is the printed form of a value of the certificate or of its subgroups."""
    certificate = a_certificate()
    point = {name: getattr(certificate, name) for name in POINT_KEYS} | {"cases": 1_234, "dismissed": 77}
    group = SubgroupRow(column="site", group="north", **point)
    model = replace(a_model(), valid_until="2027-12-31", subgroups=(group,))
    allowed = set()
    for value in (*certificate.as_document().values(), *group.as_document().values()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        allowed |= {f"{value:,}", f"{value:.4f}", percent(value), f"{100 * value:.6g}%"}
    allowed |= {f"{100 - 100 * certificate.delta:.6g}%"}  # the confidence
    made = model.fingerprint
    text = render_card(model).replace("2027-12-31", "")
    for name in (made.encoder, made.weights_sha256, made.recipe):
        assert name in text
        text = text.replace(name, "")
    text = text.replace("SHA-256", "")
    found = re.findall(r"\d[\d,.]*%?", text)
    assert len(found) > 12
    for number in found:
        assert number.rstrip(".,") in allowed, number
    assert f"{certificate.bound_corrected * 100:.2f}%" in text
    assert "| site | north | 1,234 |" in text


def test_the_card_says_what_a_person_must_write_and_what_is_forbidden() -> None:
    model = replace(a_model(), terms={"training": (FORBIDDEN,), "evaluation": (FORBIDDEN,)})
    text = render_card(model)
    for heading in ("Intended use", "Training data", "Metrics", "Subgroups", "Limits", "must still write"):
        assert heading in text
    assert "do not pass this model on: the terms of Set X" in text
    bare = render_card(a_model(certified=False))
    assert "**Not certified**" in bare
    assert "The terms of these data are not recorded." in bare
    assert "find out what they allow" in bare


def test_the_folder_keeps_the_card_the_prior_the_last_day_and_the_terms(tmp_path: Path) -> None:
    point = {name: getattr(a_certificate(), name) for name in POINT_KEYS}
    group = SubgroupRow(column="site", group="north", **point)
    terms = {"training": (FORBIDDEN,)}
    model = replace(a_model(), valid_until="2027-12-31", terms=terms, subgroups=(group,))
    write_model(model, tmp_path / "model")
    found = read_model(tmp_path / "model").model
    assert found.subgroups == (group,)
    assert (found.valid_until, dict(found.terms)) == ("2027-12-31", {"training": (FORBIDDEN,)})
    assert found.prior == prior_of(1, 553)
    card = tmp_path / "model" / CARD
    card.write_text(card.read_text() + "My own words.\n")
    with pytest.raises(InputError, match="was changed after the model was exported"):
        read_model(tmp_path / "model")


def test_terms_follow_the_column_of_the_manifest() -> None:
    table = pl.DataFrame({"image_id": ["1", "2"], "dataset": ["rsna", "nlbs"]})
    nlbs, rsna = terms_of(table)
    assert (nlbs.dataset, rsna.dataset) == ("nlbs", "rsna")
    assert "non-commercial" in rsna.licence
    (own,) = terms_of(pl.DataFrame({"image_id": ["1"]}))
    assert own.weights == "unknown"
    (other,) = terms_of(pl.DataFrame({"dataset": ["our clinic"]}))
    assert (other.dataset, other.licence) == ("our clinic", "unknown")
    assert "RSNA" in describe_terms((rsna,))


def test_what_export_says_about_passing_a_model_on() -> None:
    free = DataTerms(**(FORBIDDEN.as_document() | {"features": "allowed", "weights": "allowed"}))
    assert sharing_warnings({"training": (free,), "evaluation": (free,)}) == ()
    (text,) = sharing_warnings({"training": (free,), "evaluation": (FORBIDDEN,)})
    assert "forbid to pass on features" in text
    unknown = terms_of(pl.DataFrame({"image_id": ["1"]}))
    (text,) = sharing_warnings({"training": unknown})
    assert "read the terms of the training data" in text


def test_terms_travel_from_the_cache_to_the_run_the_model_and_the_report(tmp_path: Path) -> None:
    manifest, features = two_halves()[0]
    cache = write_cohort(tmp_path / "cache.zarr", manifest.with_columns(dataset=pl.lit("rsna")), features)
    assert "RSNA Screening" in cache_info(open_cache(cache)).terms
    chosen = {"ce": presets()["ce"]}
    fit_heads(cache, tmp_path / "run", configurations=chosen, epochs=1, threads=1)
    assert [item.dataset for item in RunFolder(tmp_path / "run").terms] == ["rsna"]
    made = export_model(tmp_path / "run", tmp_path / "model", configuration="ce", valid_until="2030-01-01")
    assert [item.dataset for item in made.stored.model.terms["training"]] == ["rsna"]
    assert any("before you pass this model on" in text for text in made.warnings)
    assert "RSNA Screening" in (tmp_path / "model" / CARD).read_text()
    facts = [fact for part in provenance(gather([tmp_path / "run"], Options())) for fact in part.facts]
    assert any(name == "data and their terms" and "RSNA Screening" in value for name, value in facts)
