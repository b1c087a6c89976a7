"""The stand-in notices what a GPU would: else what passes on it would mean nothing."""

from __future__ import annotations

import gc
import os
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.standin.standin import state, watched

CUDA = torch.device("cuda")


def test_numbers_are_the_cpus_and_gradients_too() -> None:
    torch.manual_seed(0)
    here = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    expected = here(x)
    expected.sum().backward()
    gradient = here[0].weight.grad
    there = here.to("cuda")
    there.zero_grad()
    found = there(x.to("cuda"))
    found.sum().backward()
    assert found.device == torch.device("cuda", 0)
    assert torch.equal(found.cpu(), expected) and torch.equal(there[0].weight.grad.cpu(), gradient)


def test_every_thread_has_it() -> None:
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.ones(2, device="cuda") + 1))
    thread.start()
    thread.join()
    assert made[0].is_cuda and made[0].tolist() == [2.0, 2.0]


def test_host_and_device_do_not_mix() -> None:
    weight = torch.ones(3, 4, device=CUDA)
    for mixed in (
        lambda: F.embedding(torch.zeros(2, dtype=torch.int64), weight),
        lambda: F.linear(torch.ones(1, 4), weight),
        lambda: weight + torch.ones(3, 4),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    assert (weight + torch.tensor(1.0)).is_cuda  # a single number may come along


def test_looking_and_copies_that_wait_are_counted_and_can_be_refused() -> None:
    x = torch.ones(3, device=CUDA)
    pinned = torch.ones(3, pin_memory=True)
    with watched() as seen:
        pinned.to(CUDA, non_blocking=True)
    assert not seen.waits and seen.operations["copy to the device"] == 1
    for look in (
        lambda: float(x.sum()),
        lambda: x[x > 0],
        lambda: x.cpu(),
        lambda: x[torch.tensor([0])],
        lambda: pinned.to(CUDA),
        lambda: torch.ones(3).to(CUDA, non_blocking=True),  # of memory that is not pinned
    ):
        with watched() as seen:
            look()
        assert seen.waits.total() == 1
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
                look()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_torchs_own_checks_of_arguments_run() -> None:
    assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
    with pytest.raises(ValueError, match="specified index"):
        torch.cuda.get_per_process_memory_fraction(CUDA)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.memory_reserved(1)


def test_unwritten_memory_holds_no_numbers() -> None:
    assert torch.empty(3, device=CUDA).isnan().all()


def test_memory_is_counted_limited_and_given_back() -> None:
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(2**20, device=CUDA)
    view = x[5:]
    assert torch.cuda.memory_allocated() - before == 4 * 2**20
    del x
    assert torch.cuda.memory_allocated() - before == 4 * 2**20
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + 4 * 2**20
    torch.cuda.set_per_process_memory_fraction((before + 2**20) / 2**30 / 80)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(2**20, device=CUDA)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**50, dtype=torch.uint8, device=CUDA)


def test_attention_adds_up_in_any_order_unless_torch_is_strict() -> None:
    def gradient() -> torch.Tensor:
        q = torch.arange(1.0, 25.0, device=CUDA).view(1, 1, 3, 8).sin().requires_grad_()
        F.scaled_dot_product_attention(q, q, q).pow(2).sum().backward()
        assert q.grad is not None
        return q.grad

    assert not torch.equal(gradient(), gradient())
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(gradient(), gradient())
        with pytest.raises(RuntimeError, match="deterministic implementation"):
            torch.ones(3, device=CUDA).cumsum(0)
        torch.ones(3, dtype=torch.int64, device=CUDA).cumsum(0)
    finally:
        torch.use_deterministic_algorithms(False)


def test_its_random_numbers_are_its_own() -> None:
    torch.manual_seed(1)
    first = torch.rand(3, device=CUDA)
    with torch.random.fork_rng(devices=[CUDA]):
        F.dropout(torch.ones(100, device=CUDA))
    then = torch.rand(3, device=CUDA)
    torch.manual_seed(1)
    torch.rand(7)  # the host's change nothing
    assert torch.equal(torch.rand(3, device=CUDA), first)
    assert torch.equal(torch.rand(3, device=CUDA), then)


def test_a_forked_process_cannot_use_it() -> None:
    torch.ones(1, device=CUDA)
    torch.cuda.init()
    child = os.fork()
    if child == 0:
        try:
            torch.cuda.current_device()
            torch.cuda.init()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_tape_launches_a_step_again() -> None:
    """As a CUDA graph would: what was launched, on the same memory, with a look refused."""
    x = torch.zeros(4, device=CUDA)
    total = torch.zeros((), device=CUDA)
    state.tape = []
    try:
        total.add_((x * 2).sum())
        with pytest.raises(AssertionError, match="looks at numbers"):
            float(total)
    finally:
        tape, state.tape = state.tape, None
    x.fill_(3.0)
    with torch.no_grad():
        for function, given, named, out in tape:
            again = function(*given, **named)
            if again.data_ptr() != out.data_ptr():
                out.copy_(again)
    assert float(total) == 24.0
