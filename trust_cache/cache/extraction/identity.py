"""The fingerprint of features that are made here, wherever they are made: in a cache or one by one."""

from trust_cache.cache.encoder import EncoderIdentity
from trust_cache.cache.extraction.devices import precision_of
from trust_cache.cache.extraction.origin import Origin
from trust_cache.cache.fingerprint import Fingerprint
from trust_cache.cache.view_tensors import STANDARDISATION
from trust_cache.cache.views import ViewSettings


def make_fingerprint(
    encoder: EncoderIdentity, origin: Origin, *, image_size: tuple[int, int], seed: int, device: str
) -> Fingerprint:
    """Return what features of this encoder on this device, of images from this origin, are known by."""
    return Fingerprint(
        encoder=encoder.encoder,
        weights_sha256=encoder.weights_sha256,
        image_size=image_size,
        preprocessing=origin.preprocessing,
        standardisation=STANDARDISATION,
        precision=precision_of(device),
        view_settings=ViewSettings().words(),
        seed=seed,
        decoder=origin.decoder,
    )
