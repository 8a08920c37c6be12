"""`prefetch`, for kernels: asks memory for a cell that is read soon, so that many reads wait together, not in turn."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_BYTE, _WORD = ir.IntType(8).as_pointer(), ir.IntType(32)
_KIND = ir.FunctionType(ir.VoidType(), [_BYTE, _WORD, _WORD, _WORD])
_TO_READ, _TO_KEEP, _DATA = _WORD(0), _WORD(3), _WORD(1)


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_: Any, array: Any, place: Any) -> Any:  # noqa: ARG001 (read when code is emitted)
    """Fetches the cell at a place of an array. A place beyond its end is harmless."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        cells = context.make_array(signature.args[0])(context, builder, given[0])
        cell = builder.bitcast(builder.gep(cells.data, [given[1]]), _BYTE)
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE], _KIND)
        builder.call(fetch, [cell, _TO_READ, _TO_KEEP, _DATA])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit
