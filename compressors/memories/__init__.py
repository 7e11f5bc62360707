from compressors.memories.registry import build, registry

__all__ = ["build", "registry"]
