"""The examination of a machine: everything looked at in one list, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trust_cache.service.doctor.findings import Finding, good
from trust_cache.service.doctor.machine import (
    GB,
    free_disk,
    kernel_cache_finding,
    memory_findings,
    processor_findings,
)
from trust_cache.service.doctor.packages import decoder_findings, device_findings, package_findings
from trust_cache.service.estimate.size import CacheSize, estimate_size


def examine(folder: Path, manifest: Path | None = None, views: int = 8) -> tuple[Finding, ...]:
    """Look at this machine, and at the room in `folder` for the cache of a manifest if there is one."""
    size = None if manifest is None else estimate_size(manifest, views)
    return (
        *processor_findings(),
        *memory_findings(),
        disk_finding(free_disk(folder), folder, size),
        kernel_cache_finding(),
        *device_findings(),
        *decoder_findings(),
        *package_findings(),
    )


def disk_finding(free: int, folder: Path, size: CacheSize | None) -> Finding:
    """Compare the free room with what a cache needs."""
    place = f"{free / GB:.1f} GB free in {folder.absolute()}"
    if size is None:
        return good("machine", "disk", place)
    needed = f"the cache of {size.images:,} images and {size.views} views takes {size.total / GB:.2f} GB"
    if size.total > free:
        mend = "free some room, choose a --out on another disk, or take fewer --views"
        return Finding("machine", "disk", "missing", f"{place}; {needed}", mend)
    return good("machine", "disk", f"{place}; {needed}")


def as_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as one JSON document."""
    return {
        "findings": [asdict(finding) for finding in findings],
        "missing": sum(finding.state == "missing" for finding in findings),
    }
