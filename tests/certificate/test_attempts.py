"""Attempts on the same scores are recorded before results are shown, and every certificate lists them."""

import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import make_scores
from trust_cache import certify
from trust_cache.base.errors import InputError
from trust_cache.certificate.attempts import log_file, read_attempts, record_attempt
from trust_cache.certificate.certified_folder import write_certification
from trust_cache.certificate.recertify import verify_certified
from trust_cache.certificate.verify import verify


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    make_scores(cases=400, positives=60).write_csv(tmp_path / "scores.csv")
    return tmp_path / "scores.csv"


def attempt(scores: Path, out: Path, **settings: object) -> Path:
    """Certify, record and write; return the certificate at the first target."""
    made = record_attempt(certify(scores, **settings), scores)  # type: ignore[arg-type]
    write_certification(made, out, overwrite=True)
    return out / "certificates" / f"scores@{made.settings.targets[0]!r}.json"


def test_a_second_seed_is_recorded_and_shown(run: Run, scores: Path, tmp_path: Path) -> None:  # noqa: F811
    first = run("certify", scores, "--out", tmp_path / "first")
    assert "attempt" not in first.err
    second = run("certify", scores, "--out", tmp_path / "second", "--seed", 1)
    assert "this is not the first attempt: 1 with other settings or another split" in second.err
    assert "seed 0, targets 0.98, 0.95, rule recall, protocol paper:" in second.err
    found = json.loads((tmp_path / "second" / "certificates" / "scores@0.98.json").read_text())["attempts"]
    assert [item["seed"] for item in found] == [0, 1]
    earlier = json.loads((tmp_path / "first" / "points.json").read_text())["points"]
    assert found[0]["statuses"] == {f"scores@{point['target']}": point["status"] for point in earlier}
    assert run("report", scores, tmp_path / "second", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "1. seed 0, targets 0.98, 0.95" in page
    assert "2. seed 1, targets 0.98, 0.95" in page
    for folder in ("first", "second"):
        assert verify(tmp_path / folder / "certificates" / "scores@0.98.json", scores).holds


def test_the_same_again_is_the_same_attempt_and_the_same_bytes(scores: Path, tmp_path: Path) -> None:
    certificate = attempt(scores, tmp_path / "out")
    before = certificate.read_bytes(), log_file(scores).read_bytes()
    attempt(scores, tmp_path / "out")
    attempt(scores, tmp_path / "other", by="site", prevalence=0.01)  # neither changes a status
    assert (certificate.read_bytes(), log_file(scores).read_bytes()) == before
    assert not (tmp_path / "out.1").exists()
    for changes in ({"targets": (0.9,)}, {"limit": 0.5}, {"rule": "crc"}, {"delta": 0.05}):
        attempt(scores, tmp_path / "out", **changes)
    assert len(read_attempts(log_file(scores))) == 5


def test_other_scores_in_the_same_place_are_listed_as_such(scores: Path, tmp_path: Path) -> None:
    attempt(scores, tmp_path / "out")
    make_scores(cases=400, positives=60, seed=5).write_csv(scores)
    made = record_attempt(certify(scores), scores)
    assert len(made.attempts) == 2
    assert "1 of them on other scores" in made.warnings[-1]


def test_a_certificate_that_hides_an_attempt_is_refuted(scores: Path, tmp_path: Path) -> None:
    attempt(scores, tmp_path / "first")
    certificate = attempt(scores, tmp_path / "second", seed=1)
    stated = json.loads(certificate.read_text())
    certificate.write_text(json.dumps(stated | {"attempts": stated["attempts"][1:]}))
    found = verify(certificate, scores).disagreements
    assert {item.field for item in found} == {"attempts"}
    # Hidden in the whole folder, the log beside the scores still has it.
    document = json.loads((tmp_path / "second" / "points.json").read_text())
    (tmp_path / "second" / "points.json").write_text(
        json.dumps(document | {"attempts": stated["attempts"][1:]})
    )
    (found,) = verify(certificate, scores).disagreements
    assert "1 more before it" in str(found)
    certificate.write_text(json.dumps(stated | {"attempts": stated["attempts"][:1]}))
    assert {item.field for item in verify(certificate, scores).disagreements} == {"attempts"}


def test_an_edited_log_is_refused(scores: Path, tmp_path: Path) -> None:
    for seed in range(3):
        certificate = attempt(scores, tmp_path / "out", seed=seed)
    log = log_file(scores)
    whole = json.loads(log.read_text())
    entries = whole["attempts"]
    changed = {**entries[1], "seed": 9}
    for edited in (entries[1:], [entries[0], entries[2]], entries[::-1], [entries[0], changed, entries[2]]):
        log.write_text(json.dumps(whole | {"attempts": edited}))
        for act in (partial(attempt, scores, tmp_path / "out"), partial(verify, certificate, scores)):
            with pytest.raises(InputError, match=r"was changed by hand: attempt [12] does not follow"):
                act()


def test_a_place_that_cannot_be_written_is_a_warning(scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trust_cache.certificate.attempts.os.access", lambda *_: False)  # also for root
    made = record_attempt(certify(scores), scores)
    assert made.attempts == ()
    assert "this attempt is not recorded" in made.warnings[-1]


def _record(scores: Path, seed: int) -> int:
    return len(record_attempt(certify(scores, seed=seed), scores).attempts)


def test_attempts_of_several_processes_are_all_kept(scores: Path) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:  # polars does not survive a fork
        known = list(pool.map(partial(_record, scores), range(6)))
    assert sorted(known) == list(range(1, 7))
    assert {item.seed for item in read_attempts(log_file(scores))} == set(range(6))


def test_a_certified_folder_is_verified_by_its_scores_or_its_counts(scores: Path, tmp_path: Path) -> None:
    certificate = attempt(scores, tmp_path / "out", by="site")
    for given in (None, scores):
        found = verify_certified(tmp_path / "out", given)
        assert (found.problem, found.certificates, found.scores) == (None, 2, given)
    stated = json.loads(certificate.read_text())
    certificate.write_text(json.dumps(stated | {"bound": stated["bound"] / 2}))
    for given in (None, scores):
        assert "bound" in str(verify_certified(tmp_path / "out", given).problem)
    certificate.write_text(json.dumps(stated))
    for name in ("points.csv", "subgroups.csv", "table.md"):
        file = tmp_path / "out" / name
        content = file.read_bytes()
        file.write_bytes(content.replace(b"0.0", b"0.9", 1) + b" ")
        assert f"{name}: is not what points.json and the scores give" in str(
            verify_certified(tmp_path / "out", scores).problem
        )
        file.write_bytes(content)
    document = json.loads((tmp_path / "out" / "points.json").read_text())
    for change in (
        {"composition": document["composition"] | {"groups": {"site": ["site 0"]}}},
        {"subgroups": document["subgroups"][1:]},
        {"subgroups": [document["subgroups"][0] | {"bound_corrected": 1e-4}, *document["subgroups"][1:]]},
        {"split": "seed 4", "settings": document["settings"] | {"seed": 4}},
    ):
        (tmp_path / "out" / "points.json").write_text(json.dumps(document | change))
        assert verify_certified(tmp_path / "out", scores).problem is not None, change
