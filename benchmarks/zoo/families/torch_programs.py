"""PyTorch: functions of tensors as its users write them, with autograd and torch.optim. Needs PyTorch, not JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

#: For each dimension of an argument: the axis of the mesh that shards it, or None.
Partition = tuple[str | None, ...]


@dataclass(frozen=True)
class Program:
    """A function of tensors that gives tensors, its arguments, and how the arguments of some numbers are sharded.

    The mesh has two axes: "data", and "model" of two devices.
    """

    function: Callable[..., Sequence[Any]]
    arguments: tuple[np.ndarray, ...]
    partitions: dict[int, Partition] = field(default_factory=dict)

    def shard(self, tensors: Sequence[Any], devices: int) -> None:
        """Say on which devices the parts of the arguments lie."""
        import torch_xla.distributed.spmd as xs

        if devices == 1:
            return
        mesh = xs.Mesh(np.arange(devices), (devices // 2, 2), ("data", "model"))
        for number, partition in self.partitions.items():
            xs.mark_sharding(tensors[number], mesh, partition)


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def integers(seed: int, most: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, most, shape)


def training(
    model: Callable[[], nn.Module],
    loss: Callable[..., Any],
    data: Sequence[np.ndarray],
    optimizer: Callable[..., torch.optim.Optimizer],
    partition: Callable[[str, tuple[int, ...]], Partition | None] = lambda name, dims: None,
) -> Program:
    """Return a step that gives the loss, the parameters and the buffers after it. Batches are sharded over "data"."""
    torch.manual_seed(0)
    module = model()
    names = [*dict(module.named_parameters()), *dict(module.named_buffers())]
    values = [x.detach().numpy().copy() for x in (*module.parameters(), *module.buffers())]
    count = len(list(module.parameters()))

    def step(*tensors: Any) -> list[Any]:
        state = {name: x.detach() for name, x in zip(names, tensors, strict=False)}
        leaves = [state[name].requires_grad_() for name in names[:count]]
        value = loss(
            lambda *given: torch.func.functional_call(module, state, given), *tensors[len(names) :]
        )
        chosen = optimizer(leaves)
        value.backward()
        chosen.step()
        return [value, *(state[name] for name in names)]

    partitions: dict[int, Partition] = {}
    for number, (name, x) in enumerate(zip(names, values, strict=True)):
        found = partition(name, x.shape)
        if found is not None:
            partitions[number] = found
    for number, x in enumerate(data, len(names)):
        partitions[number] = ("data", *[None] * (x.ndim - 1))
    return Program(step, (*values, *data), partitions)


def _columns(name: str, dims: tuple[int, ...]) -> Partition | None:
    """Shard the first dimension of matrices, which is that of the features they give."""
    return ("model", None) if len(dims) == 2 and dims[0] % 2 == 0 else None


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-2, foreach=False)


def _momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 1e-2, momentum=0.9, nesterov=True, foreach=False)


def pt_mlp_adamw() -> Program:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))

    def loss(net: Any, x: Any, labels: Any) -> Any:
        return functional.cross_entropy(net(x), labels, label_smoothing=0.1)

    return training(model, loss, (normal(1, 16, 16), integers(2, 10, 16)), _adamw, _columns)


def pt_transformer() -> Program:
    def model() -> nn.Module:
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def loss(net: Any, x: Any, y: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(12, device=x.device)
        return functional.mse_loss(net(x, mask), y)

    data = (normal(1, 8, 12, 32), normal(2, 8, 12, 32))
    return training(model, loss, data, _adamw, _columns)


def pt_conv_batch_norm() -> Program:
    def model() -> nn.Module:
        first = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
        second = [nn.Conv2d(8, 16, 3, groups=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        return nn.Sequential(*first, nn.MaxPool2d(2), *second, nn.Flatten(), nn.Linear(16, 5))

    def loss(net: Any, x: Any, labels: Any) -> Any:
        return functional.cross_entropy(net(x), labels)

    return training(model, loss, (normal(1, 8, 3, 16, 16), integers(2, 5, 8)), _momentum)


def pt_embedding_lstm() -> Program:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 16)
            self.cell = nn.LSTMCell(16, 24)
            self.last = nn.Linear(24, 6)

        def forward(self, tokens: Any) -> Any:
            x, found, state = self.embedding(tokens), [], None
            for t in range(tokens.shape[1]):
                state = self.cell(x[:, t], state)
                found.append(self.last(state[0]))
            return torch.stack(found, 1)

    def loss(net: Any, tokens: Any, tags: Any) -> Any:
        return functional.cross_entropy(net(tokens).flatten(0, 1), tags.flatten(), ignore_index=0)

    data = (integers(1, 30, 8, 7), integers(2, 6, 8, 7))
    return training(Tagger, loss, data, _momentum, _columns)


def pt_group_norm_unet() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(4, 16, 3, 2, 1)
            self.norm = nn.GroupNorm(4, 16)
            self.up = nn.ConvTranspose2d(16, 8, 2, 2)
            self.out = nn.Conv2d(12, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            h = functional.silu(self.norm(self.down(x)))
            small = functional.interpolate(h, scale_factor=0.5, mode="nearest")
            h = h + functional.interpolate(
                small, scale_factor=2, mode="bilinear", align_corners=False
            )
            return self.out(torch.cat([self.up(h), x], 1))

    def loss(net: Any, x: Any, y: Any) -> Any:
        return functional.smooth_l1_loss(net(x), y)

    data = (normal(1, 8, 4, 8, 8), normal(2, 8, 4, 8, 8))
    return training(Net, loss, data, _adamw)


def pt_bf16_attention() -> Program:
    def function(x: Any, qkv: Any, out: Any) -> list[Any]:
        x, qkv, out = (one.to(torch.bfloat16) for one in (x, qkv, out))
        q, k, v = (x @ qkv).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        h = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = h.transpose(1, 2).flatten(2) @ out
        return [y, functional.softmax(y.float(), -1)]

    arguments = (normal(1, 8, 10, 32), normal(2, 32, 96, scale=0.2), normal(3, 32, 32, scale=0.2))
    partitions: dict[int, Partition] = {0: ("data", None, None), 1: (None, "model")}
    return Program(function, arguments, {**partitions, 2: ("model", None)})


def pt_indexing() -> Program:
    def function(x: Any, i: Any) -> list[Any]:
        values, places = torch.topk(x, 3, dim=1)
        added = torch.zeros_like(x).index_put((i, i % 6), x[:, 0], accumulate=True)
        return [
            values,
            places,
            added,
            torch.gather(x, 1, i[:, None].expand(-1, 4) % 6),
            torch.zeros_like(x).scatter_add(0, i[:, None].expand_as(x), x),
            torch.index_select(x, 0, i[:5]),
            torch.sort(x, dim=0, descending=True)[0],
            torch.cumsum(x, 0),
            torch.where(x > 0, x, x.flip(1)).masked_fill(x > 1, 2.0),
            torch.roll(x, (1, 2), (0, 1)),
            torch.tril(x) - torch.triu(x, 1),
        ]

    return Program(function, (normal(1, 8, 6), integers(2, 8, 8)), {0: ("data", None)})


def pt_experts() -> Program:
    """Tokens go to the two experts with the largest gates, each of which lies on devices of its own."""

    def function(x: Any, gate: Any, up: Any, down: Any) -> list[Any]:
        weights, chosen = torch.topk(functional.softmax(x @ gate, -1), 2)
        sent = (functional.one_hot(chosen, 4).to(x.dtype) * weights[..., None]).sum(-2)
        h = functional.silu(torch.einsum("te,td,edf->etf", (sent > 0).to(x.dtype), x, up))
        y = torch.einsum("te,etf,efd->td", sent, h, down)
        return [y, sent.mean(0)]

    arguments = (normal(1, 24, 16), normal(2, 16, 4), normal(3, 4, 16, 32, scale=0.2))
    partitions: dict[int, Partition] = {0: ("data", None), 2: ("model", None, None)}
    return Program(
        function,
        (*arguments, normal(4, 4, 32, 16, scale=0.2)),
        {**partitions, 3: ("model", None, None)},
    )


def pt_reductions() -> Program:
    def function(x: Any) -> list[Any]:
        return [
            torch.var_mean(x, 0)[0],
            torch.logsumexp(x, 1),
            torch.linalg.vector_norm(x, 3, 1),
            *torch.max(x, 1),
            torch.prod(x[:, :4], 1),
            (x > 0).any(1),
            torch.argmin(x, 0),
            torch.amax(x, (0, 1)),
            functional.normalize(x, dim=1),
            torch.cdist(x[:4], x[4:]),
            functional.avg_pool1d(x[None], 3, 2, 1),
        ]

    return Program(function, (normal(1, 8, 20),), {0: ("data", "model")})
