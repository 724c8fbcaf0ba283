"""Files of the NEFF cache in the archives of ``torch.compiler.save_cache_artifacts``.

Imported with the package, because ``load_cache_artifacts`` may come before the first compile.
"""

from __future__ import annotations

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory

from .. import _C


@CacheArtifactFactory.register
class NeffArtifact(CacheArtifact):
    """One file; its key is that of the cache, 32 hexadecimal digits."""

    def populate_cache(self) -> None:
        _C.neff.import_file(self.key, self.content)

    @staticmethod
    def type() -> str:
        return "neuron_neff"
