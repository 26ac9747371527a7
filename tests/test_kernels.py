"""The Triton kernels for GPUs: right in Triton's interpreter, on a CPU; and compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recoslip.base.errors import RecoslipWarning
from recoslip.learning.networks.device import can_take, compile_here


def test_kernels_compute_what_pytorchs_operators_do():
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpreted_kernels.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", script]
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # Triton reads it when it is imported
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_every_kernel_compiles_for_a_gpu(tmp_path, monkeypatch):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from recoslip.learning.networks import triton_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    number, index, key = "*fp32", "*i32", "*i64"
    # Pointers by name; what is upper case is known when a kernel is compiled, and the rest are whole numbers.
    pointers = {
        "values": number, "value": number, "result": number, "dense": number, "g": number, "grad": number,
        "keys": key, "key": key, "order": key, "numbers": key, "left": key, "right": key, "pair": key, "other": key,
        "segment": index, "column": index, "begin": index, "scale": "fp32",
    }  # fmt: skip
    constants = {
        "RELU": True, "ORDERED": True, "WEIGHTED": True, "NUMERATOR": 3, "COUNT": 2, "BLOCK": 64, "ENTRIES": 4,
        "MEMBERS": 8, "WIDTH": 32,
    }  # fmt: skip
    compiled = 0
    for name, kernel in vars(triton_kernels).items():
        if not name.endswith("_kernel"):
            continue
        names = kernel.arg_names
        own = {**pointers, "result": key} if name == "_derive_kernel" else pointers
        source = ASTSource(
            fn=kernel,
            signature={n: "constexpr" if n.isupper() else own.get(n, "i32") for n in names},
            constexprs={(names.index(n),): value for n, value in constants.items() if n in names},
        )
        options = {"enable_fp_fusion": True}
        assert triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm["ptx"]
        compiled += 1
    assert compiled == 6


def test_without_triton_pytorchs_operators_are_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "recoslip.learning.networks.triton_kernels", None)  # importing it fails
    with pytest.warns(RecoslipWarning, match=r"Triton compiles no kernels here \(.*\); training on the GPU takes"):
        assert not compile_here.__wrapped__()
    assert not can_take(torch.ones(3))  # a tensor on the CPU
