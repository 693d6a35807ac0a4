"""The options that commands share, and how a command is registered with them."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from trust_cache.base.errors import InputError
from trust_cache.base.places import redacted
from trust_cache_cli.output import note

if TYPE_CHECKING:
    from trust_cache.base.executor import Cluster


Command: TypeAlias = Callable[..., None]
_LOGGER = logging.getLogger("trust_cache")
TARGETS = (0.98, 0.95)
CTRL_C = 130


def command_group() -> typer.Typer:
    """Return an empty group of commands."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


def command(
    app: typer.Typer, *examples: str, name: str | None = None, notes: str = "", kept: str = ""
) -> Callable[[Command], Command]:
    """Register a function as a command whose help shows the examples, then the notes.

    `kept` says what Ctrl-C leaves and how to resume, with {out} for the output; the default says that no
    results were written.

    A parameter that is annotated with a dataclass adds one option per field of the dataclass. Every command
    also gets -v and --log.
    """
    lines = "".join(f"    trust-cache {example}\n\n" for example in examples)
    epilog = f"**Example{'s' * (len(examples) > 1)}**\n\n{lines}{notes}"

    def register(function: Command) -> Command:
        records: dict[str, Any] = {"logging": _LoggingOptions}
        options = list(inspect.signature(_LoggingOptions).parameters.values())
        own: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            kind = parameter.annotation
            if isinstance(kind, type) and is_dataclass(kind):
                records[parameter.name] = kind
                own += inspect.signature(kind).parameters.values()
            else:
                own.append(parameter)

        @wraps(function)
        def run(**given: Any) -> None:
            words = dict(given)
            for key, record in records.items():
                given[key] = record(**{field.name: given.pop(field.name) for field in fields(record)})
            del given["logging"]
            try:
                function(**given)
            except KeyboardInterrupt:
                text = (kept or "no results were written, earlier ones are unchanged").format(
                    out=words.get("out", "")
                )
                note(f"\nStopped by Ctrl-C: {text}.")
                raise typer.Exit(CTRL_C) from None

        keyword_only = [option.replace(kind=option.KEYWORD_ONLY) for option in (*own, *options)]
        run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        app.command(name, epilog=epilog)(run)
        return function

    return register


class _Formatter(logging.Formatter):
    """Writes messages and tracebacks without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def _verbose(value: bool) -> bool:
    if value:
        handler = logging.StreamHandler()
        handler.setFormatter(_Formatter("%(message)s"))
        handler.setLevel(logging.INFO)
        _listen(handler)
    return value


def _log(value: Path | None) -> Path | None:
    if value is not None:
        try:
            handler = logging.FileHandler(value, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{value}: cannot write there ({error.strerror})") from error
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        _listen(handler)
    return value


def _listen(handler: logging.Handler) -> None:
    _LOGGER.setLevel(logging.DEBUG)
    _LOGGER.addHandler(handler)


@dataclass(frozen=True)
class _LoggingOptions:
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print what is being done.", callback=_verbose)
    ] = False
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a detailed log to FILE.", callback=_log)
    ] = None


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option(help="Seed of all random draws.")]
CacheArgument = Annotated[
    str, typer.Argument(metavar="CACHE", help="A cache of features: a .zarr folder or URL, or an .h5 file.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder from fit-heads or external.")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
OutRun = Annotated[Path, typer.Option("--out", metavar="DIR", help="The run folder to write.")]
OutCache = Annotated[str, typer.Option("--out", metavar="CACHE", help="The cache to write: .zarr or .h5.")]
AugmentedViews = Annotated[int, typer.Option(metavar="K", help="Augmented views per image.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="mammo-clip-b5, mammo-clip-b2, mammo-fm, any timm model, or huggingface. [mammo-clip-b5]",
    ),
]
ImageSize = Annotated[
    str | None,
    typer.Option(metavar="HxW", help="Height and width of the encoder's input. [its recipe's; 1520x912]"),
]
Recipe = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A TOML file with keys of the encoder's recipe. [its own recipe]"),
]
Runtime = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="torch, openvino or auto; auto: OpenVINO on a processor, if it is installed."
    ),
]
Decoder = Annotated[
    str,
    typer.Option(
        metavar="imagecodecs|nvimagecodec",
        help="Decodes compressed frames: on the processor, or lossless ones on an NVIDIA GPU.",
    ),
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Worker processes. [all cores]")]
Like = Annotated[str, typer.Option(metavar="SET", help="The data set to imitate: rsna or nlbs.")]
AllowUrls = Annotated[
    bool, typer.Option("--allow-urls", help="Open paths in the manifest that are URLs of their own.")
]
Threads = Annotated[int | None, typer.Option(help="Processor threads. [all cores]")]
LowMemory = Annotated[bool, typer.Option("--low-memory", help="Map the features instead of loading them.")]
Epochs = Annotated[int, typer.Option(help="Epochs of training.")]
Repeats = Annotated[int, typer.Option(metavar="R", help="Train R times with different folds and batches.")]
Folds = Annotated[Path | None, typer.Option(metavar="FILE", help="Reuse the folds of an earlier folds.csv.")]
Targets = Annotated[
    list[float] | None,
    typer.Option("--target", metavar="R", help="A recall to keep; may be repeated. [0.98 and 0.95]"),
]
Delta = Annotated[float, typer.Option(help="One minus the confidence of the bounds.")]
SplitFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Reuse the search/evaluation split of a split.csv.")
]
By = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Certify the same thresholds for each group of a column (age=50,60,70: bands of numbers); may be"
        " repeated.",
    ),
]
Prevalence = Annotated[
    float | None, typer.Option(metavar="P", help="Also bound the false omission rate at this prevalence.")
]
Limit = Annotated[
    float | None,
    typer.Option(metavar="B", help="The largest acceptable bound. [the prevalence of the evaluation cases]"),
]
_PROTOCOL = (
    "What a case must be to be dismissed: paper (every image has a score), screening (also the four standard"
    " projections and no warning about a picture), or a .toml file."
)
ProtocolOption = Annotated[str, typer.Option("--protocol", metavar="NAME", help=_PROTOCOL)]


@dataclass(frozen=True)
class TrainingOptions:
    """How heads are trained."""

    epochs: Epochs = 20
    seed: Seed = 0
    views: Annotated[
        int | None, typer.Option(metavar="K", help="Train on the first K augmented views. [all]")
    ] = None
    threads: Threads = None
    low_memory: LowMemory = False


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing results.")]


@dataclass(frozen=True)
class HeadOptions:
    """Settings of all heads."""

    lr: Annotated[
        float | None, typer.Option(help="Learning rate of every configuration. [its own: 3e-5]")
    ] = None
    weight_decay: Annotated[
        float | None, typer.Option(help="Weight decay of every configuration. [its own: 1e-4]")
    ] = None
    clip: Annotated[
        float | None, typer.Option(help="Largest gradient norm of every configuration. [its own: 5]")
    ] = None
    batch_positives: Annotated[int, typer.Option(metavar="N", help="Positive images per batch.")] = 20
    batch_negatives: Annotated[int, typer.Option(metavar="N", help="Negative images per batch.")] = 60
    dropout: Annotated[float, typer.Option(metavar="P", help="Share of features dropped in training.")] = 0.3


@dataclass(frozen=True)
class ColumnOptions:
    """The names of the scores' columns; a certified folder remembers them."""

    case: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of case ids. [case_id]")] = (
        None
    )
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels. [label]")] = None
    score: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of scores. [score]")] = None
    positive: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="The label of cancer; all others are healthy. [1 or true]"),
    ] = None
    patient: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of patients, if there is one. [patient_id]"),
    ] = None

    def given(self) -> dict[str, str]:
        """Return the names that were given, by the names of the library's arguments."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class RunOptions:
    """Whether a run is new."""

    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False


@dataclass(frozen=True)
class CertifyOptions:
    """How points are certified."""

    target: Targets = None
    delta: Delta = 0.01
    split: SplitFile = None
    prevalence: Prevalence = None
    resplits: Annotated[
        int, typer.Option(metavar="R", help="Repeat over R random splits and report the spread.")
    ] = 0
    limit: Limit = None
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{_PROTOCOL} [paper; with --model, the model's]"),
    ] = None
    band: Annotated[
        bool, typer.Option("--band", help="Also write bounds that hold at all thresholds at once: band.csv.")
    ] = False
    rule: Annotated[
        str, typer.Option(help="How to choose the threshold on the search subset: recall, crc, rcps, ltt.")
    ] = "recall"


@dataclass(frozen=True)
class ClusterOptions:
    """Where the work is done."""

    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of this scheduler: tcp://host:8786."),
    ] = None
    resources: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="The resources that a worker must have, such as GPU=1."),
    ] = None

    def cluster(self) -> "Cluster | None":
        """Return the cluster, or nothing for this machine."""
        from trust_cache.base.executor import Cluster

        if self.scheduler is None:
            if self.resources is not None:
                raise InputError("--resources: expected --scheduler with it, found none")
            return None
        wanted: dict[str, float] = {}
        for item in filter(str.strip, (self.resources or "").split(",")):
            name, _, amount = item.partition("=")
            try:
                wanted[name.strip()] = float(amount or 1)
            except ValueError as error:
                raise InputError(f"--resources: expected NAME=NUMBER, found {item!r}") from error
        return Cluster(self.scheduler, wanted)


def names(text: str | None) -> tuple[str, ...] | None:
    """Split names that are separated by commas."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
