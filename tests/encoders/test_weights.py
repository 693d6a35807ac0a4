"""Conversion of checkpoints: strict, repeatable, and deaf to what a pickle asks for."""

import hashlib
import io
import json
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from efficientnet_pytorch import EfficientNet
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.encoders.replica import PREFIX, Hostile, save_archive
from trust_cache.base.errors import InputError
from trust_cache.encoders.checkpoints import checked_tensors, read_record
from trust_cache.encoders.convert_weights import Conversion, convert_weights
from trust_cache.encoders.efficientnet_names import timm_name
from trust_cache.encoders.mammo_clip import B5

Converted = tuple[Path, Conversion]


def test_the_record(archive: Path, converted: Converted) -> None:
    path, conversion = converted
    record = conversion.record
    assert record == read_record(path)
    assert record.source_sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert conversion.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (record.encoder, record.architecture, record.padding) == (
        "mammo-clip-b5",
        "tf_efficientnet_b5",
        "static-456",
    )
    assert (conversion.tensors, conversion.notes) == (852, ())
    with safe_open(path, "pt") as file:
        assert list(file.metadata()) == ["trust_cache_encoder"]


def test_again_gives_the_same_bytes(archive: Path, converted: Converted, tmp_path: Path) -> None:
    path, conversion = converted
    again = convert_weights(archive, tmp_path / "again.safetensors")
    assert again == conversion
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    assert [found.name for found in tmp_path.iterdir()] == ["again.safetensors"]


def test_another_file_is_not_overwritten(archive: Path, converted: Converted, tmp_path: Path) -> None:
    taken = tmp_path / "taken.safetensors"
    taken.write_bytes(b"mine")
    with pytest.raises(InputError, match="is there already, with other content"):
        convert_weights(archive, taken)
    assert taken.read_bytes() == b"mine"
    with pytest.raises(InputError, match="is converted already, for mammo-clip-b5"):
        convert_weights(converted[0], tmp_path / "twice.safetensors")


def test_a_plain_state_dict_in_the_old_format(
    oracle: nn.Module, converted: Converted, tmp_path: Path
) -> None:
    """Without counters and with a classifier, as efficientnet_pytorch's own files are."""
    state = {name: t for name, t in oracle.state_dict().items() if "num_batches" not in name}
    state["_fc.weight"], state["_fc.bias"] = torch.zeros(1000, 2048), torch.zeros(1000)
    torch.save(state, tmp_path / "b5.pth", _use_new_zipfile_serialization=False)
    done = convert_weights(tmp_path / "b5.pth", tmp_path / "e.safetensors")
    assert done.notes == (
        "left out the classifier (_fc.bias, _fc.weight)",
        "116 counters of batches were absent and are 0",
    )
    found, expected = load_file(tmp_path / "e.safetensors"), load_file(converted[0])
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.slow
def test_timms_names_need_the_encoder(converted: Converted, tmp_path: Path) -> None:
    tensors = load_file(converted[0])
    source = tmp_path / "timm.safetensors"
    save_file(tensors, source)
    with pytest.raises(InputError, match=r"say which: --encoder NAME \(--encoder mammo-clip-b5"):
        convert_weights(source, tmp_path / "a.safetensors")
    done = convert_weights(source, tmp_path / "a.safetensors", encoder="mammo-clip-b5")
    assert (done.record.padding, done.record.source_kind) == ("static-456", "safetensors")
    assert all(torch.equal(tensors[name], t) for name, t in load_file(tmp_path / "a.safetensors").items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("_blocks.7._bn1.bias"), r"1 missing \(blocks\.1\.4\.bn2\.bias\)"),
        (lambda s: s.update(extra=torch.ones(1)), r"1 unexpected \(extra\)"),
        (
            lambda s: s.update({"_bn0.bias": torch.zeros(40)}),
            r"1 of another shape \(bn1\.bias \[40\] instead of \[48\]\)",
        ),
        (
            lambda s: s.update({"_bn0.bias": torch.zeros(48, dtype=torch.int64)}),
            r"bn1\.bias \[48\] of integers instead of \[48\]",
        ),
        (
            lambda s: s.update({"_conv_stem.weight": torch.full((48, 3, 3, 3), torch.nan)}),
            r"conv_stem\.weight holds 1296 values that are NaN",
        ),
    ],
    ids=["missing", "unexpected", "shape", "integers", "nan"],
)
def test_strict(
    oracle: nn.Module, tmp_path: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    # Views of one number: the archive stays small, the shapes are those of the encoder.
    state = {
        name: torch.ones((), dtype=tensor.dtype).expand(tensor.shape)
        for name, tensor in oracle.state_dict().items()
    }
    change(state)
    save_archive(tmp_path / "x.tar", {PREFIX + name: tensor for name, tensor in state.items()})
    with pytest.raises(InputError, match=message):
        convert_weights(tmp_path / "x.tar", tmp_path / "e.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


def test_values_that_no_encoder_has() -> None:
    form = {"bn.running_var": torch.ones(2), "bn.weight": torch.ones(2)}
    good, notes = checked_tensors({**form, "bn.weight": torch.ones(2).half()}, form, "it", "file")
    assert (good["bn.weight"].dtype, notes) == (torch.float32, ("converted to float32 from torch.float16",))
    for name, value, message in [
        ("bn.running_var", torch.tensor([1.0, -0.5]), "negative variance"),
        ("bn.weight", torch.tensor([1.0, torch.inf]), "1 values that are NaN or infinite"),
        ("bn.weight", torch.tensor([1.0, 1e300], dtype=torch.float64), "1 values that are NaN or infinite"),
    ]:
        with pytest.raises(InputError, match=message):
            checked_tensors({**form, name: value}, form, "it", "file")


def test_another_architecture(tmp_path: Path) -> None:
    other = EfficientNet.from_name("efficientnet-b0", include_top=False).state_dict()
    torch.save(other, tmp_path / "b0.pth")
    with pytest.raises(
        InputError, match=r"expected the 852 tensors of mammo-clip-b5; \d+ missing .*of another"
    ):
        convert_weights(tmp_path / "b0.pth", tmp_path / "e.safetensors")
    torch.save({"conv1.weight": torch.ones(2)}, tmp_path / "resnet.pth")
    with pytest.raises(InputError, match=r"found 1 tensors such as conv1.weight.*--encoder NAME"):
        convert_weights(tmp_path / "resnet.pth", tmp_path / "e.safetensors")
    save_archive(tmp_path / "x.tar", {PREFIX + "conv1.weight": torch.ones(2)})
    with pytest.raises(InputError, match=r"736 missing.*1 unexpected \(conv1\.weight\)"):
        convert_weights(tmp_path / "x.tar", tmp_path / "e.safetensors")


def test_names_are_mapped_one_to_one(oracle: nn.Module) -> None:
    names = [timm_name(name, B5.depths) for name in oracle.state_dict()]
    assert len(set(names)) == len(names) == 852
    assert None not in names
    for stranger in ("_fc.weight", "_blocks.39._bn1.bias", "_blocks.0._expand_conv.weight", "text", "_bn0"):
        assert timm_name(stranger, B5.depths) is None


class HostileBySystem(Hostile):
    def __reduce__(self) -> tuple[object, ...]:
        import os  # noqa: PLC0415

        return os.system, (f"touch {self.victim}",)


def in_a_tar(path: Path, content: bytes) -> None:
    with tarfile.open(path, "w") as file:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("kind", [Hostile, HostileBySystem])
@pytest.mark.parametrize("form", ["archive", "config", "old format", "pickle", "protocol 4", "tar"])
def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(
    tmp_path: Path, kind: type[Hostile], form: str
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "hostile.tar"
    trap = kind(victim)
    if form == "archive":
        torch.save(trap, path)
    elif form == "config":
        save_archive(path, {PREFIX + "_conv_stem.weight": torch.ones(2)}, config=trap)
    elif form == "old format":
        torch.save({"model": trap}, path, _use_new_zipfile_serialization=False)
    elif form == "tar":
        in_a_tar(path, pickle.dumps(trap, protocol=2))
    else:
        path.write_bytes(pickle.dumps({"model": trap}, protocol=4 if form == "protocol 4" else 2))
    with pytest.raises(
        InputError, match=r"hostile\.tar: (refused: it asks to load|expected a checkpoint)"
    ) as told:
        convert_weights(path, tmp_path / "e.safetensors")
    assert [found.name for found in tmp_path.iterdir()] == ["hostile.tar"]
    if form in ("archive", "config"):
        assert "Nothing in it was run" in str(told.value)
        assert ("exec" if kind is Hostile else "system") in str(told.value)
    pickle.loads(pickle.dumps(trap))  # noqa: S301 - the trap is a real one
    assert victim.exists()


def test_files_that_are_no_checkpoints(archive: Path, converted: Converted, tmp_path: Path) -> None:
    with archive.open("rb") as file:
        start = file.read(2_000_000)
    with converted[0].open("rb") as file:
        short = file.read(200_000)
    with zipfile.ZipFile(tmp_path / "zip", "w") as made:
        made.writestr("word/document.xml", "<x/>")
    contents = {
        "truncated": start,
        "truncated safetensors": short,
        "empty": b"",
        "text": b"Dear colleague, please find the weights attached.",
        "html": b"<!DOCTYPE html><html>Sign in</html>",
        "zip": (tmp_path / "zip").read_bytes(),
        "bytes": bytes(range(256)) * 10,
        "header": (2**60).to_bytes(8, "little") + b"{}",
        "lies": (40).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_of' + b"x" * 10,
    }
    for name, content in contents.items():
        path = tmp_path / f"{name}.tar"
        path.write_bytes(content)
        with pytest.raises(InputError, match="damaged, truncated or of another kind") as told:
            convert_weights(path, tmp_path / "e.safetensors")
        assert "weights_only" not in str(told.value)  # torch's advice to load it unsafely
    for value, message in [([1, 2], "found a list"), ({"epoch": 3, "model": {"a": 1}}, "with epoch, model")]:
        torch.save(value, tmp_path / "other.tar")
        with pytest.raises(InputError, match=message):
            convert_weights(tmp_path / "other.tar", tmp_path / "e.safetensors")
    assert not (tmp_path / "e.safetensors").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "its record is damaged"),
        ('{"format": 2}', "newer trust-cache"),
        ('{"format": 1}', "damaged"),
    ],
)
def test_records_that_are_not_ours(tmp_path: Path, text: str, message: str) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", {"trust_cache_encoder": text})
    with pytest.raises(InputError, match=message):
        read_record(tmp_path / "a.safetensors")


PEAK = """
import json, resource, sys
from trust_cache.encoders.convert_weights import convert_weights
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
convert_weights(sys.argv[1], sys.argv[2])
print(json.dumps(peak()))
"""


@pytest.mark.slow
def test_what_is_beside_the_encoder_is_never_loaded(oracle: nn.Module, archive: Path, tmp_path: Path) -> None:
    """An optimizer of 600 MB adds nothing to the memory that the conversion takes."""
    theirs = {PREFIX + name: tensor for name, tensor in oracle.state_dict().items()}
    save_archive(tmp_path / "large.tar", theirs, optimizer={"exp_avg": torch.zeros(150_000_000)})
    peaks = []
    for number, path in enumerate((archive, tmp_path / "large.tar")):
        words = [sys.executable, "-c", PEAK, str(path), str(tmp_path / f"{number}.safetensors")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        peaks.append(json.loads(done.stdout))
    assert (tmp_path / "large.tar").stat().st_size > archive.stat().st_size + 599_000_000
    assert peaks[1] < peaks[0] + 100_000_000
