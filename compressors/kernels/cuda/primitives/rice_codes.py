"""Read Golomb-Rice codes in Triton: where a code begins is known only when all codes before it have been read.

A code with parameter r is some 0 bits, a 1 and r low bits. The stream is cut into chunks of 32 (r + 1) bits. How many
low bits a chunk still has to skip, 0 to r, is its state: one lane for each chunk and state reads the chunk, code by
code, in at most 32 steps, and finds the state of the next chunk, the number of codes whose 1 is in the chunk, and the
sum of their low bits. These maps are composed within groups of chunks, one group a program, by doubling. The program
that ends last composes those of the groups: each lane those of some neighbours one after the other, then by doubling.
Now the state of every chunk is known, and a second kernel reads the chunks once more and writes the positions.

The map of a chunk, or of several, is an int64 for each state: the next state in the lowest 5 bits, the number of codes
in the next 15, and the sum of low bits. One map behind another is `earlier - state + map[state]` with the state of
`earlier`. The zeros need no sum: they are the bits before the end of a code that belong to no 1 and to no low bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from compressors import flags
from compressors.kernels.cuda.primitives.launch import launch

_LANES = 512  # at most 2^14 codes a group
_BLOCK = 128
_STEPS = tl.constexpr(32)
_STATE = tl.constexpr(31)
_COUNT = tl.constexpr(5)
_COUNTS = tl.constexpr((1 << 15) - 1)
_LOW = tl.constexpr(20)
_ONE_CODE = tl.constexpr(1 << 5)
_HEAD = tl.constexpr((1 << 20) - 1)


@triton.jit
def _load_windows(payload, word, size, mask) -> tl.tensor:
    """Return 64 bits of the stream from the 32-bit words `word` on; zeros follow its last byte."""
    window = tl.zeros(word.shape, tl.int64)
    for byte in tl.static_range(8):
        place = 4 * word + byte
        window |= tl.load(payload + place, mask=mask & (place < size), other=0).to(tl.int64) << (8 * byte)
    return window


@triton.jit
def _lowest_bit(word) -> tl.tensor:
    """Return the number of the lowest set bit of int32; less than 0 if there is none."""
    power = (word & -word).to(tl.float32).to(tl.int32, bitcast=True)
    return ((power >> 23) & 0xFF) - 127


@triton.jit
def _read_code(windows, bit, end, parameter) -> tl.tensor:
    """Look for the 1 of a code in 32 bits from `bit` on, before `end`.

    Return whether there is one, the low bits of its code, and where to go on, at most `parameter` bits behind `end`.
    """
    word = (tl.load(windows + (bit >> 5)) >> (bit & 31).to(tl.int64)).to(tl.int32)
    zeros = _lowest_bit(word)
    low = bit + zeros + 1
    found = (zeros >= 0) & (low <= end)
    window = tl.load(windows + (low >> 5), mask=found, other=0) >> (low & 31).to(tl.int64)
    field = window & ((tl.full(bit.shape, 1, tl.int64) << parameter) - 1)
    return found, field, tl.where(found, low + parameter, tl.maximum(bit, tl.minimum(bit + 32, end)))


@triton.jit
def enter_groups(maps, heads, lows, entries, groups, states, group, LANES: tl.constexpr) -> None:
    """Write for every group its state and the number of codes before it, as in a map, and the sum of their low bits.

    `entries` (2, groups) gets them; `heads` and `lows` are room for LANES numbers each.
    """
    lane = tl.arange(0, LANES)
    length = (groups + group - 1) // group
    part, state = lane // states, (lane % states).to(tl.int64)
    real = part < group
    head, low = state, tl.zeros((LANES,), tl.int64)
    number = part.to(tl.int64) * length
    for _ in range(length):
        last = ((number + 1) * group - 1) * states + (head & _STATE)
        total = tl.load(maps + last, mask=real & (number < groups), other=head & _STATE, cache_modifier=".cg")
        head += (total & _HEAD) - (head & _STATE)
        low += total >> _LOW
        number += 1
    distance = 1
    while distance * length < groups:
        tl.store(heads + lane, head)
        tl.store(lows + lane, low)
        tl.debug_barrier()
        later = real & (part >= distance)
        earlier = tl.load(heads + lane - distance * states, mask=later, other=0)
        earlier_low = tl.load(lows + lane - distance * states, mask=later, other=0)
        place = part * states + (earlier & _STATE)
        mapped = tl.load(heads + place, mask=later, other=0)
        mapped_low = tl.load(lows + place, mask=later, other=0)
        head = tl.where(later, earlier - (earlier & _STATE) + mapped, head)
        low = tl.where(later, earlier_low + mapped_low, low)
        tl.debug_barrier()
        distance *= 2
    tl.store(heads + lane, head)
    tl.store(lows + lane, low)
    tl.debug_barrier()
    real = lane < group  # now each lane has a part, and its state
    head = tl.load(heads + (lane - 1) * states, mask=real & (lane > 0), other=0)
    low = tl.load(lows + (lane - 1) * states, mask=real & (lane > 0), other=0)
    number = lane.to(tl.int64) * length
    for _ in range(length):
        some = real & (number < groups)
        tl.store(entries + number, head, mask=some)
        tl.store(entries + groups + number, low, mask=some)
        last = ((number + 1) * group - 1) * states + (head & _STATE)
        total = tl.load(maps + last, mask=some, other=head & _STATE, cache_modifier=".cg")
        head += (total & _HEAD) - (head & _STATE)
        low += total >> _LOW
        number += 1


@triton.jit(do_not_specialize=["size", "parameter", "group"])
def _map_chunks(
    payload, windows, maps, heads, lows, entries, done, size, parameter, group, LANES: tl.constexpr
) -> None:
    """Write the maps from the beginning of each group to the end of each of its chunks, and how groups are entered.

    `windows` gets 64 bits of the stream from each 32-bit word on. `done` is 0.
    """
    states = parameter + 1
    lane = tl.arange(0, LANES)
    first = tl.program_id(0).to(tl.int64) * group * states
    inside = lane <= group * states  # low bits may lie in the next group
    tl.store(windows + first + lane, _load_windows(payload, first + lane, size, inside), mask=inside)
    tl.debug_barrier()
    real = lane < group * states
    row = lane // states * states
    bit = tl.where(real, 32 * row + lane - row, 0)
    end = tl.where(real, 32 * row + 32 * states, 0)
    own = tl.zeros((LANES,), tl.int64)
    for _ in range(_STEPS):
        found, field, bit = _read_code(windows + first, bit, end, parameter)
        own += tl.where(found, (field << _LOW) + _ONE_CODE, 0)
    own += bit - end
    distance = 1
    while distance < group:
        tl.store(maps + first + lane, own, mask=real)
        tl.debug_barrier()
        later = real & (lane >= distance * states)
        earlier = tl.load(maps + first + lane - distance * states, mask=later, other=0)
        mapped = tl.load(maps + first + row + (earlier & _STATE), mask=later, other=0)
        own = tl.where(later, earlier - (earlier & _STATE) + mapped, own)
        tl.debug_barrier()
        distance *= 2
    tl.store(maps + first + lane, own, mask=real)
    tl.debug_barrier()
    if tl.atomic_add(done, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        enter_groups(maps, heads, lows, entries, tl.num_programs(0), states, group, LANES)


@triton.jit(do_not_specialize=["size", "chunks", "groups", "count", "n", "parameter", "group"])
def _write_positions(
    windows, maps, entries, indices, end, size, chunks, groups, count, n, parameter, group, BLOCK: tl.constexpr
) -> None:
    """Write the positions that `count` codes mean; then, if they are good, the bit at which the codes end.

    What is written as a position is below n, whatever the bits are.
    """
    states = (parameter + 1).to(tl.int64)
    chunk = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = chunk < chunks
    chunk = tl.where(real, chunk, 0)
    number = chunk // group
    head = tl.load(entries + number)
    low = tl.load(entries + groups + number)
    state = head & _STATE
    before = tl.load(maps + (chunk - 1) * states + state, mask=chunk % group > 0, other=state)
    place = (head >> _COUNT) + ((before >> _COUNT) & _COUNTS)
    low += before >> _LOW
    bit = tl.where(real, before & _STATE, 0).to(tl.int32)
    stop = tl.where(real, 32 * states, 0).to(tl.int32)
    last_bit, last_index = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int64)
    for _ in range(_STEPS):
        found, field, bit = _read_code(windows + chunk * states, bit, stop, parameter)
        low += field
        index = ((32 * chunk * states + bit - (place + 1) * states) << parameter) + low + place
        tl.store(indices + place, tl.minimum(tl.maximum(index, 0), n - 1), mask=found & (place < count))
        is_last = found & (place == count - 1)
        last_bit = tl.where(is_last, bit, last_bit)
        last_index = tl.where(is_last, index, last_index)
        place += found.to(tl.int64)
    behind = 32 * chunk * states + last_bit
    padding = (tl.full((BLOCK,), 1, tl.int64) << (-behind & 7)) - 1
    window = tl.load(windows + chunk * states + (last_bit >> 5)) >> (last_bit & 31).to(tl.int64)
    good = (last_bit > 0) & (behind <= 8 * size.to(tl.int64)) & (last_index < n) & ((window & padding) == 0)
    tl.store(end + tl.zeros((BLOCK,), tl.int32), behind, mask=good)


@triton.jit(do_not_specialize=["size"])
def _check_end(end, wrong, size) -> None:
    """Set `wrong` unless the codes end in the last of `size` bytes."""
    tl.store(wrong, 1, mask=(tl.load(end) + 7) // 8 != size)


def read_positions(
    payload: torch.Tensor, n: int, count: int, parameter: int, is_whole: bool
) -> tuple[torch.Tensor | None, int]:
    """Return the `count` positions below `n` whose gaps `payload` holds, and the number of bytes read.

    None if it does not hold them, or if the last byte is not padded with zeros; with `is_whole`, also if bytes follow.
    """
    indices = torch.zeros(count, dtype=torch.int64, device=payload.device)
    if not count or not len(payload):
        return None if count or (is_whole and len(payload)) else indices, 0
    states = parameter + 1
    group = (_LANES - 1) // states
    chunks = -(-len(payload) // (4 * states))
    groups = -(-chunks // group)
    words = groups * group * states
    room = torch.empty(2 * words + 1 + 2 * _LANES + 2 * groups, dtype=torch.int64, device=payload.device)
    windows, maps, heads, lows, entries = room.split([words + 1, words, _LANES, _LANES, 2 * groups])
    done, end = torch.zeros(2, 1, dtype=torch.int64, device=payload.device)
    size = len(payload)
    launch(
        _map_chunks, groups, payload, windows, maps, heads, lows, entries, done, size, parameter, group,
        LANES=_LANES, num_warps=8,
    )  # fmt: skip
    launch(
        _write_positions, -(-chunks // _BLOCK), windows, maps, entries, indices, end, size, chunks, groups, count, n,
        parameter, group, BLOCK=_BLOCK,
    )  # fmt: skip
    if is_whole:  # so the number of bytes is known, and the flag need not be read at once
        wrong = flags.make(payload.device)
        launch(_check_end, 1, end, wrong, size)
        return (None, 0) if flags.is_refused(wrong) else (indices, size)
    bits = int(end.item())
    return (indices, -(-bits // 8)) if bits else (None, 0)
