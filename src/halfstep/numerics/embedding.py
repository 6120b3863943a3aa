"""Rows of a quantized weight, and the sums, means and maxima of bags of them, as float32."""

import torch
from torch import Tensor

from halfstep.numerics.affine import dequantize, spread
from halfstep.numerics.integer import centred

SUM, MEAN, MAX = 0, 1, 2


def rows(w: Tensor, scale: Tensor, zero_point: Tensor, indices: Tensor) -> Tensor:
    """The dequantized rows of w (V, D) for indices of any shape: (*indices.shape, D)."""
    flat = indices.reshape(-1)
    found = dequantize(*_pick(w, scale, zero_point, flat), torch.float32)
    return found.reshape(*indices.shape, w.shape[1])


def _pick(
    w: Tensor, scale: Tensor, zero_point: Tensor, flat: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The codes of rows with their scales and zero points."""
    place = flat if scale.shape[0] == w.shape[0] else flat * scale.shape[0] // max(w.shape[0], 1)
    return w[flat], scale[place], zero_point[place]


def bags(
    w: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    """One row for each bag of ``indices`` (N); bag b starts at ``offsets[b]``.

    mode: 0 sum, 1 mean, 2 max. ``padding_idx``: rows that no bag counts, -1 for none.
    ``include_last_offset``: the last offset is where the last bag ends.

    With one scale for all rows an unweighted sum is exact, one rounding and one product; otherwise
    rows are added one by one, in order. The mean divides by the number of rows. An empty bag is 0.
    """
    count = offsets.numel() - include_last_offset
    place = torch.arange(indices.numel(), device=indices.device)
    bag = torch.searchsorted(offsets[:count].long().contiguous(), place, right=True) - 1
    kept = indices != padding_idx
    indices, bag = indices[kept], bag[kept]
    sizes = torch.bincount(bag, minlength=count)
    picked = _pick(w, scale, zero_point, indices)
    if mode != MAX and per_sample_weights is None and _share_a_grid(scale, zero_point):
        acc = torch.zeros((count, w.shape[1]), dtype=torch.float64, device=w.device)
        acc.index_add_(0, bag, centred(picked[0], picked[2]))
        y = acc.float() * spread(scale, acc.shape)
    else:
        terms = dequantize(*picked, torch.float32)
        if per_sample_weights is not None:
            terms = per_sample_weights.float()[kept].unsqueeze(1) * terms
        y = _in_order(terms, sizes, highest=mode == MAX)
    return y / sizes.clamp(min=1).unsqueeze(1).float() if mode == MEAN else y


def _share_a_grid(scale: Tensor, zero_point: Tensor) -> bool:
    return scale.shape[0] == 1 and not zero_point.is_floating_point()


def _in_order(terms: Tensor, sizes: Tensor, *, highest: bool) -> Tensor:
    """The float32 sum (or the maximum) of each bag's terms, which lie one bag after the other."""
    y = torch.zeros((sizes.numel(), terms.shape[1]), device=terms.device)
    first = sizes.cumsum(0) - sizes
    for step in range(int(sizes.max()) if sizes.numel() else 0):
        longer = (sizes > step).nonzero().squeeze(1)
        term = terms[first[longer] + step]
        before = y[longer]
        y[longer] = term if highest and step == 0 else _combined(before, term, highest=highest)
    return y


def _combined(before: Tensor, term: Tensor, *, highest: bool) -> Tensor:
    return torch.maximum(before, term) if highest else before + term
