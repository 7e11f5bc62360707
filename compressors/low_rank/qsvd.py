"""Low rank in few bits: the vectors of a singular value decomposition, quantised."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

from compressors import build
from compressors.base import Compressor, CorruptPayload, Law
from compressors.kernels import buffers, threads
from compressors.lazy import torch
from compressors.low_rank.svd import SampledSpectral, add_product, matrix_shape
from compressors.quantisation import buckets
from compressors.random_key import Key, splitmix64
from gradsweep.options.parameters import choice, integer

_QUANTISED = 0x5176_616E_7469_7365


@dataclasses.dataclass(frozen=True)
class QSVD(SampledSpectral):
    """Atoms of the singular value decomposition, kept at random as `svd` keeps them, with quantised vectors
    (LeanSGD, after Wang et al., "ATOMO", NeurIPS 2018, and Alistarh et al., "QSGD", NeurIPS 2017).

    What is sent of an atom is sigma / p in float32 and both of its vectors of length 1, each on its own by
    `scheme`: `qsgd` with `levels`, `bucket_size` and `norm`, or `terngrad` with `bucket_size` and without clipping.
    All of these roundings are independent and unbiased, so E[u_q v_q^T] = u v^T, and E[Q(x)] = x.

    1-D tensors, and matrices whose expected atoms would not be smaller than the matrix quantised by the scheme,
    are quantised as they are; the shape alone decides that. A draw that keeps more atoms than are worth it
    has their product quantised.

    Payload, for r kept atoms of a (rows, columns) matrix:
        per atom 4 bytes, sigma / p as little-endian float32; the payload that the scheme gives for the left vector,
        (rows,); its payload for the right one, (columns,)
    where that is shorter than the scheme's payload for the whole tensor; else the latter. The length says
    which, and r: there is no header.

    A matrix with NaN or Inf in it arrives as NaN in every element; of one that is quantised as it is, the
    bucket does. float64 is rounded to float32 first.
    """

    name: ClassVar[str] = "qsvd"
    paper: ClassVar[str] = "LeanSGD, after Wang et al., ATOMO, NeurIPS 2018"

    scheme: str = choice("qsgd", "qsgd", "terngrad")
    levels: int = integer(7, low=1, high=32767)
    bucket_size: int | None = buckets.option(512)
    norm: str = choice("max", "max", "l2")

    @property
    def coder(self) -> Compressor:
        """The compressor that encodes the vectors."""
        if self.scheme == "terngrad":
            return build("terngrad", clip=0.0, bucket_size=self.bucket_size)
        return build("qsgd", levels=self.levels, bucket_size=self.bucket_size, norm=self.norm)

    def _atom_size(self, rows: int, columns: int) -> int:
        return 4 + self.coder.payload_bound((rows,)) + self.coder.payload_bound((columns,))

    def is_dense(self, shape: Sequence[int]) -> bool:
        rows, columns = matrix_shape(shape)
        atoms = self.mean_atoms(rows, columns)
        return len(shape) < 2 or atoms * self._atom_size(rows, columns) >= self.coder.payload_bound(shape)

    def payload_bound(self, shape: Sequence[int]) -> int:
        return self.coder.payload_bound(shape)

    def law(self, shape: Sequence[int]) -> Law:
        rows, columns = matrix_shape(shape)
        if self.is_dense(shape):
            return self.coder.law(shape)
        of_left, of_right, of_all = (self.coder.law(one).omega for one in ((rows,), (columns,), shape))
        assert of_left is not None and of_right is not None and of_all is not None
        # With s = sigma / p of the kept atoms, the errors of their vectors independent and of mean zero:
        # E ||Q||^2 = sum s^2 E ||u_q||^2 E ||v_q||^2 + terms of two atoms, which are those of the exact vectors: zero.
        # And E sum s^2 <= (1 + omega) ||x||^2, omega being that of the draw.
        rounding = max(1.0 + of_all, (1.0 + of_left) * (1.0 + of_right))
        return Law(unbiased=True, omega=(1.0 + self.sampling_omega(rows, columns)) * rounding - 1.0)

    def compress(self, x: torch.Tensor, key: Key, out: torch.Tensor | None = None) -> torch.Tensor:
        coder = self.coder
        flat = buffers.as_float32(x)
        if self.is_dense(x.shape):
            return coder.compress(flat.view(x.shape), key, out)
        rows, columns = matrix_shape(x.shape)
        with threads.single_thread(), torch.no_grad():
            left, right = self.factors(flat.view(rows, columns), key)
            atoms, each = left.shape[0], self._atom_size(rows, columns)
            if atoms * each >= coder.payload_bound(x.shape):
                return coder.compress((left.T @ right).view(x.shape), _stream(key, 0), out)
            long = right if rows <= columns else left
            lengths = torch.linalg.vector_norm(long.double(), dim=1)
            # Of a zero vector, or one of denormals where the processor flushes those, nothing is left to scale.
            long.copy_(long.double() / torch.where(lengths == 0, 1.0, lengths)[:, None])
        payload = buffers.prepare(out, atoms * each, x.device)
        for atom in range(atoms):
            buffers.write_floats(lengths[atom : atom + 1].float(), payload[atom * each : atom * each + 4])
            position = atom * each + 4
            for side, vector in enumerate((left[atom], right[atom])):
                written = coder.compress(vector, _stream(key, 2 * atom + side + 1), payload[position:])
                position += len(written)
        return buffers.deliver(payload, out)

    def decompress_add(self, payload: torch.Tensor, out: torch.Tensor, key: Key, weight: float = 1.0) -> None:
        coder = self.coder
        payload = buffers.receive(payload, out.device, self.payload_size(out.shape))
        whole = coder.payload_bound(out.shape)
        if payload.numel() == whole:
            coder.decompress_add(payload, out, key, weight)
            return
        rows, columns = matrix_shape(out.shape)
        each = self._atom_size(rows, columns)
        atoms, rest = divmod(payload.numel(), each)
        if rest or payload.numel() > whole:
            raise CorruptPayload(f"{payload.numel()} bytes are no number of atoms of a {rows} x {columns} matrix")
        left, right = (torch.zeros(atoms, size, device=out.device) for size in (rows, columns))
        middle = 4 + coder.payload_bound((rows,))
        for atom in range(atoms):
            part = payload[atom * each : (atom + 1) * each]
            scale = float(buffers.read_floats(part[:4]))
            if scale < 0.0 or math.isinf(scale):
                raise CorruptPayload(f"atom {atom} has the size {scale}")
            coder.decompress_add(part[4:middle], left[atom], _stream(key, 2 * atom + 1), scale)
            coder.decompress_add(part[middle:], right[atom], _stream(key, 2 * atom + 2))
        add_product(left, right, out.detach(), weight)

    def kernel_modules(self) -> tuple[str, ...]:
        return (*super().kernel_modules(), *self.coder.kernel_modules())


def _stream(key: Key, number: int) -> Key:
    """Return a separate key for each random step of a payload: rounding each vector, and drawing the atoms."""
    mask = 2**64 - 1
    start = splitmix64((key.unit & mask) ^ _QUANTISED)
    return dataclasses.replace(key, unit=splitmix64((start + number) & mask))
