"""Imported by the launcher: what the killed commands use, and decoding in the process that is killed."""

import pytest

import trust_cache.certificate.certify
import trust_cache.clinic.monitoring.monitor
import trust_cache.report.report
import trust_cache.studies.sweep.sweep  # noqa: F401 - imported once, for all children
from tests.faults.chain_pipeline import in_this_process

in_this_process(pytest.MonkeyPatch())
