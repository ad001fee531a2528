"""Explicit data movement: load, store, assemble, move, and making buffers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuscope.ops import rounding, storage
from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT32, UINT8, DataType
from npuscope.ops.elementwise import CAST
from npuscope.ops.shaping import CREATE, TRANSPOSE
from npuscope.ops.spec import Plane
from npuscope.ops.transfers import ASSEMBLE, COPY_BOX, GATHER_ROW, IMG2COL, LOAD, MOVE, STORE
from npuscope.tile.calls.functions import implements, settled
from npuscope.tile.calls.shaping import inside, overhang, reinterpret_view, reshape, slice, transposed
from npuscope.tile.enums import AtomicType, CachePolicy, MemorySpace, STPhase, TensorLayout, TileLayout
from npuscope.tile.fault import fault
from npuscope.tile.record import model, sites
from npuscope.tile.run.state import TileRun, check_bounds, check_room, current, load_box, position, store_box, write_box
from npuscope.tile.values.checks import (
    Scalar,
    check_phase,
    describe,
    dtype_of,
    fitting,
    flag,
    is_number,
    member,
    shape_of,
    shown,
)
from npuscope.tile.values.lanes import Lane, Unknown, Whole
from npuscope.tile.values.tensors import Shape, Tensor, Tile, strided, window


@implements(LOAD)
def load(
    tensor: object,
    offsets: Sequence[Whole],
    shapes: Sequence[Whole],
    valid_shape: Sequence[Whole] | None = None,
    target_memory: MemorySpace | None = None,
    clamp: bool = False,
    transpose: bool = False,
    cache: CachePolicy | None = None,
) -> Tile:
    """GM to Vec, what lies in boxes to Mat, unless `target_memory` says where; only the valid part is read."""
    run = current()
    run.region("load")
    if isinstance(tensor, Tile):
        tensor = run.promoted(tensor)
    if not isinstance(tensor, Tensor):
        raise fault(f"pl.load takes a GM tensor, not {describe(tensor)}")
    usual = MemorySpace.Vec if tensor.fractal is None else MemorySpace.Mat
    space = usual if target_memory is None else member(target_memory, MemorySpace, "load", "target_memory")
    policy = None if cache is None else member(cache, CachePolicy, "load", "cache").value
    if space is not MemorySpace.Vec and space is not MemorySpace.Mat:
        raise fault(f"pl.load fills Vec or Mat, not {space.value}", "Load to Mat and pl.move from there.")
    box = shape_of(shapes)
    if len(box) != len(tensor.shape):
        raise fault(f"pl.load: a box {list(box)} of a tensor {describe(tensor)}")
    clamp = flag(clamp, "load", "clamp=")
    wanted = None if valid_shape is None else shape_of(valid_shape)
    reach = None if wanted or clamp else overhang(run, tensor, box, offsets, "load")
    valid = inside(tensor, reach or box, offsets, wanted, clamp, "load")
    at = position(tensor, offsets)
    tile = load_box(run, tensor, at, box, valid, space=space.value, reach=reach, cache=policy)
    if flag(transpose, "load", "transpose="):
        return transposed(tile, -2, -1, TRANSPOSE)
    return tile


def set_cache_policy(tensor: object, policy: object) -> None:
    """How every read of a tensor goes from here to the end of the task, unless the read says otherwise."""
    block = current().region("set_cache_policy")
    if not isinstance(tensor, Tensor):
        raise fault(f"pl.set_cache_policy is of a GM tensor, not {describe(tensor)}")
    block.cache_policies[tensor.buffer.id] = member(policy, CachePolicy, "set_cache_policy", "policy").value


@implements(STORE)
def store(
    tile: object,
    offsets: Sequence[Whole],
    output_tensor: object,
    shapes: Sequence[Whole] | None = None,
    *,
    atomic: AtomicType = AtomicType.None_,
    st_phase: object = STPhase.Unspecified,
    pre_quant: object = None,
    pre_relu: bool = False,
) -> Tensor | Tile:
    """Any on-chip space to GM, the valid region only; `shapes` is the box that it fills.

    An accumulator may be scaled by a number on its way out (`pre_quant`), after what is below 0 became 0 (`pre_relu`):
    rounded to even, held within the type of the tensor.
    """
    run = current()
    run.region("store")
    if not isinstance(output_tensor, Tensor):
        raise fault(f"pl.store writes to a GM tensor, not {describe(output_tensor)}")
    member(atomic, AtomicType, "store", "atomic")
    check_phase(st_phase, "store", "st_phase")
    held = run.tile(tile, "store")
    if shapes is not None and (box := shape_of(shapes)) != (held.valid or held.shape):
        held = run.tile(reshape(held, box) if prod(box) == held.size else slice(held, box, [0] * len(box)), "store")
    if pre_quant is not None or flag(pre_relu, "store", "pre_relu="):
        held = _on_the_way_out(run, held, output_tensor.dtype, pre_quant, pre_relu, "store")
    if held.dtype.is_int and output_tensor.dtype.is_float and held.dtype.bytes == output_tensor.dtype.bytes:
        about = f"pl.store: {describe(held)} to {output_tensor.buffer.name} {describe(output_tensor)}"
        run.recorder.notice("bits", f"{about} writes the bits as they are. Write pl.cast to convert the numbers.")
        held = run.tile(reinterpret_view(held, output_tensor.dtype), "store")
    return store_box(run, held, output_tensor, offsets, atomic)


def _on_the_way_out(run: TileRun, tile: Tile, dtype: DataType, factor: object, relu: bool, op: str) -> Tile:
    """What the cube core's own way out makes of an accumulator."""
    if tile.space != "Acc" or dtype not in (FP32, FP16, BF16, INT8, UINT8, INT32):
        raise fault(f"pl.{op}: pre_quant= and pre_relu= are for accumulators, not {describe(tile)} to {dtype}")
    if factor is not None and (not is_number(factor) or isinstance(factor, Unknown | Lane)):
        raise fault(f"pl.{op}: pre_quant= is a constant, not {shown(factor)}")
    scale = np.float32(1 if factor is None else factor)
    made = (("mode", "rint"), ("pre_quant", float(scale)), ("pre_relu", bool(relu)))
    result = run.result(CAST, (tile,), tile.shape, dtype, tile.valid, "Acc", attributes=made, plane="move")
    if tile.array is not None:
        array = np.multiply(np.maximum(tile.array, 0) if relu else tile.array, scale, dtype=np.float32)
        if dtype.is_int:
            array = np.clip(np.rint(array), *dtype.limits).astype(dtype.compute)
        result.array = array if dtype.is_int else rounding.cast(array, FP32, dtype, "rint")
    return result


@implements(ASSEMBLE)
def assemble(
    target: object,
    source: object,
    offset: Sequence[Whole],
    *,
    atomic: AtomicType = AtomicType.None_,
    pre_quant: object = None,
    pre_relu: bool = False,
) -> Tensor | Tile:
    """Writes source's valid region into target; use the value returned. An accumulator may be scaled, cut off at 0 and
    narrowed on its way into Mat, as `store` does it.
    """
    run = current()
    member(atomic, AtomicType, "assemble", "atomic")
    if atomic is not AtomicType.None_ and (run.block is None or isinstance(target, Tile)):
        raise fault("pl.assemble with atomic= adds to GM from inside a task")
    into = run.operand(target, "assemble")
    scaled = pre_quant is not None or flag(pre_relu, "assemble", "pre_relu=")
    if isinstance(into, Tensor):
        if scaled:
            raise fault("pl.assemble into GM takes no pre_quant= or pre_relu=", "Write pl.store of the accumulator.")
        if run.block is None:
            return _alias(run, into, source, offset)
        return store_box(run, run.tile(source, "assemble"), into, offset, atomic, op=ASSEMBLE)
    return into_tile(run, into, source, offset, pre_quant, pre_relu)


def into_tile(
    run: TileRun,
    into: Tile,
    source: object,
    offset: Sequence[Whole],
    pre_quant: object = None,
    pre_relu: bool = False,
    in_place: bool = False,
) -> Tile:
    """A tile with a part replaced; `in_place`: nobody asks for the old one again."""
    tile, scaled = run.tile(source, "assemble"), pre_quant is not None or pre_relu
    if scaled or (tile.space == "Acc" and into.space == "Mat" and tile.dtype is not into.dtype):
        tile = _on_the_way_out(run, tile, into.dtype, pre_quant, pre_relu, "assemble")
    box = _fitting_box(tile, into)
    check_room("assemble", into, offset, box, "the tile")
    there = tile.part_of is not None and tile.part_of[0] is into and _alike(tile.part_of[1], offset)
    plane: Plane = "view" if there else "vector"  # what was added up in its place in an accumulator is there already
    result = run.result(ASSEMBLE, (into, tile), into.shape, into.dtype, into.valid, into.space, plane=plane)
    if into.array is not None and tile.array is not None:
        result.array = into.writable() if in_place else into.array.copy()
        part = tile.array[window(tile.valid or tile.shape)]
        result.array[window(box, [int(o) for o in offset])] = part.reshape(box)
    return result


def _alike(a: Sequence[Whole], b: Sequence[Whole]) -> bool:
    """Whether two places are the same, in every turn that is looked at together."""
    now = [[x.now() if isinstance(x, Lane) else x for x in place] for place in (a, b)]
    return len(a) == len(b) and all(x is y or np.array_equal(x, y) for x, y in zip(*now, strict=True))


def _fitting_box(source: Tensor | Tile, target: Tensor | Tile) -> Shape:
    """What is put into a target: a box of its rank and type."""
    box = source.valid or source.shape
    box = (1,) * (len(target.shape) - len(box)) + box
    if len(box) != len(target.shape):
        raise fault(f"pl.assemble: {describe(source)} into {describe(target)}")
    if source.dtype is not target.dtype:
        raise fault(f"pl.assemble: {describe(source)} into {describe(target)}", "Cast it first with pl.cast.")
    return box


def _alias(run: TileRun, target: Tensor, source: object, offset: Sequence[Whole]) -> Tensor:
    """Orchestration: from now on the part is a box of the whole; no task, no copy on the device."""
    if isinstance(source, Tile):
        source = run.promoted(source)
    if not isinstance(source, Tensor):
        raise fault(f"pl.assemble in orchestration joins GM tensors, not {describe(source)}")
    box = _fitting_box(source, target)
    check_bounds("assemble", target.shape, offset, box, target.buffer.name)
    start = int(position(target, offset))
    if source.offset or source.shape != source.buffer.shape:
        run.recorder.notice("alias", "pl.assemble of a slice in orchestration: the compiler does not fuse it")
    elif source.buffer is not target.buffer:
        run.recorder.aliases.append(
            model.Alias(
                part=source.buffer.id,
                whole=target.buffer.id,
                offset=start,
                shape=box,
                strides=target.strides,
                before_task=len(run.recorder.tasks),
                site=sites.here(),
            )
        )
    if not (source.buffer.keeps_values and target.buffer.keeps_values and source.buffer.known):
        target.buffer.known = False
    else:
        strides = (0,) * (len(box) - len(source.strides)) + source.strides
        data = storage.load(strided(source.buffer, source.offset, box, strides, source.dtype), source.dtype)
        write_box(run, target, start, box, data, source.dtype)
        if run.gm.phase is not None and source.buffer is not target.buffer:
            _join(target, start, source, box)
    return target


def _join(target: Tensor, start: int, source: Tensor, box: Shape) -> None:
    """In the order's memory: only what this phase wrote to the part, for the rest of the whole may be newer by now."""
    buffers = (source.buffer, target.buffer)
    for buffer in buffers:
        buffer.swap()
    new = source.buffer.written_mask(source.offset, box, source.strides)
    where = ... if new is None else new
    part = strided(source.buffer, source.offset, box, source.strides, source.dtype)
    strided(target.buffer, start, box, target.strides, target.dtype)[where] = part[where]
    mask = target.buffer.written_mask(start, box, target.strides)
    if mask is not None:
        mask[where] = True
    for buffer in buffers:
        buffer.swap()


@implements(MOVE)
def move(tile: object, target_memory: MemorySpace, blayout: object = None, slayout: object = None) -> Tile:
    run = current()
    source = run.tile(tile, "move")
    for name, layout in (("blayout", blayout), ("slayout", slayout)):
        if layout is not None:  # the order of its elements on chip, which its memory decides here
            member(layout, TileLayout, "move", name)
    space = member(target_memory, MemorySpace, "move", "target_memory").value
    if space == "GM" or (space == "Acc" and source.space == "Acc"):
        raise fault(
            f"pl.move: no move of {describe(source)} from {source.space or 'Vec'} to {space}",
            "Write to GM with pl.store." if space == "GM" else "Store one accumulator before the other product begins.",
        )
    result = run.result(MOVE, (source,), source.shape, source.dtype, source.valid, space)
    result.array = source.array
    return result


@implements(COPY_BOX)
def copy(
    dst: object,
    src: object,
    dst_offset: Sequence[Whole],
    src_offset: Sequence[Whole],
    shape: Sequence[Whole],
    *,
    source_memory: object = MemorySpace.DDR,
    target_memory: object = MemorySpace.DDR,
) -> Tensor | Tile:
    """A box of a tensor in GM to another. What is said to lie in SRAM lies in GM here, with the times of GM."""
    for name, space in (("source_memory", source_memory), ("target_memory", target_memory)):
        if member(space, MemorySpace, "copy", name) not in (MemorySpace.DDR, MemorySpace.SRAM):
            raise fault(f"pl.copy: {name}={shown(space)}", "It copies between DDR and SRAM.")
    return store(load(src, src_offset, shape), dst_offset, dst)


@implements(IMG2COL)
def img2col(
    src: object,
    m_offset: Whole,
    k_offset: Whole,
    shape: Sequence[Whole],
    *,
    image_shape: Sequence[Whole],
    kernel_size: Sequence[Whole],
    stride: Sequence[Whole] = (1, 1),
    padding: Sequence[Whole] = (0, 0, 0, 0),
    dilation: Sequence[Whole] = (1, 1),
) -> Tile:
    """A box of the matrix that makes a convolution a product: a row for each place of the kernel; along K blocks of 32
    bytes of channels, in each the rows, the columns of the kernel and the channels. Zeros around the image (`padding`:
    top, bottom, left, right).
    """
    run = current()
    tile, box = run.tile(src, "img2col"), shape_of(shape)
    high, wide = shape_of(image_shape)
    kernel, step, apart = shape_of(kernel_size), shape_of(stride), shape_of(dilation)
    top, bottom, left, right = shape_of(padding)
    block = 32 // tile.dtype.bytes
    if len(tile.shape) != 2 or tile.shape[0] != high * wide or tile.shape[1] % block or len(box) != 2:
        raise fault(f"pl.img2col: {describe(tile)} is no image {[high, wide]} of channels in blocks of {block}")
    around = ((high + top + bottom, kernel[0], step[0], apart[0]), (wide + left + right, kernel[1], step[1], apart[1]))
    rows, columns = ((size - gap * (taps - 1) - 1) // by + 1 for size, taps, by, gap in around)
    result = run.result(IMG2COL, (tile,), box, tile.dtype, None, "Left")
    if tile.array is not None:
        image = np.pad(tile.array.reshape(high, wide, -1, block), ((top, bottom), (left, right), (0, 0), (0, 0)))
        place = (int(m_offset) + np.arange(box[0]))[:, None]
        part = (int(k_offset) + np.arange(box[1]))[None, :]
        tap, channel = part // block % (kernel[0] * kernel[1]), part // block // (kernel[0] * kernel[1])
        inside_it = (place < rows * columns) & (channel < image.shape[2])
        y = np.where(inside_it, place // columns * step[0] + tap // kernel[1] * apart[0], 0)
        x = np.where(inside_it, place % columns * step[1] + tap % kernel[1] * apart[1], 0)
        seen = image[y, x, np.where(inside_it, channel, 0), np.broadcast_to(part % block, inside_it.shape)]
        result.array = np.where(inside_it, seen, 0).astype(tile.dtype.compute)
    return result


# --- creation


@implements(CREATE, "pl.create_tensor", "tensor.create")
def create_tensor(
    shape: Sequence[Whole],
    dtype: DataType,
    layout: object = None,
    manual_dep: bool = False,
    init_value: object = None,
    *,
    name: str = "",
) -> Tensor | Tile:
    """A GM tensor; inside a region a local tile. Uninitialised unless init_value is given."""
    run = current()
    extents = shape_of(shape)
    kind = dtype_of(dtype, "create_tensor")
    if layout is not None and member(layout, TensorLayout, "create_tensor", "layout") is not TensorLayout.ND:
        raise fault(f"pl.create_tensor: layout={layout}, which no store can write", "Leave it out: rows are packed.")
    if init_value is not None:
        init_value = fitting(init_value, kind, "pl.create_tensor")
    if init_value and kind in (FP16, BF16):
        raise fault(f"pl.create_tensor: {kind} can start as 0 only, not {init_value!r}", "Fill it in a task.")
    if run.block is not None:
        return _local(run, extents, kind, None, init_value)
    if not isinstance(name, str):
        raise fault(f"pl.create_tensor: name= must be a string, not {shown(name)}")
    manual_dep = flag(manual_dep, "create_tensor", "manual_dep=")
    fill = None if init_value is None else settled(init_value)
    return run.gm.create(name, extents, kind, fill, manual_dep=manual_dep)


@implements(CREATE, "create_tile", "tile.create")
def create_tile(
    shape: Sequence[Whole],
    dtype: DataType,
    target_memory: MemorySpace = MemorySpace.Vec,
    transpose: bool | None = None,
    *,
    flat_layout: bool | None = None,
    compact: bool | None = None,
) -> Tile:
    """An on-chip buffer; poison until written. `transpose`: for columns that gather_row(transpose=True) fills."""
    run = current()
    block = run.region("create_tile")
    space = member(target_memory, MemorySpace, "create_tile", "target_memory").value
    across = flag(bool(transpose) if transpose is None else transpose, "create_tile", "transpose=")
    flat = flag(bool(flat_layout) if flat_layout is None else flat_layout, "create_tile", "flat_layout=")
    flag(bool(compact), "create_tile", "compact=")  # how a part of it lies, which its memory decides here
    if (across or flat) and (space != "Mat" or (across and flat)):
        raise fault("pl.create_tile: transpose= and flat_layout= are of tiles in Mat, one of them at a time")
    tile = _local(run, shape_of(shape), dtype_of(dtype, "create_tile"), space, None)
    if across:
        block.filled_across.append(tile)
    return tile


def _local(run: TileRun, extents: Shape, kind: DataType, space: str | None, fill: Scalar | None) -> Tile:
    tile = run.result(CREATE, (), extents, kind, None, space)
    if kind.storage is not None and (run.computes_here or kind.steers):
        tile.array = storage.new(extents, kind, storage.poison(kind) if fill is None else settled(fill))
    return tile


@implements(CREATE, "create_l1")
def create_l1(shape: Sequence[Whole], dtype: DataType, transpose: bool = False) -> Tile:
    """An L1 tile that gather_row fills and matmul reads."""
    return create_tile(shape, dtype, MemorySpace.Mat, transpose)


@implements(GATHER_ROW)
def gather_row(
    dst: object,
    src: object,
    dst_offset: Sequence[Whole],
    src_offset: Sequence[Whole],
    shapes: Sequence[Whole],
    transpose: bool = False,
    *,
    valid_shape: Sequence[Whole] | None = None,
) -> Tensor | Tile:
    run = current()
    run.region("gather_row")
    if not isinstance(src, Tensor):
        raise fault(f"pl.gather_row reads a GM tensor, not {describe(src)}")
    box = shape_of(shapes)
    transpose = flag(transpose, "gather_row", "transpose=")
    into = run.tile(dst, "gather_row")
    if into.space == "Mat" and transpose is not any(into is one for one in run.region("gather_row").filled_across):
        about = "was not made" if transpose else "was made"
        run.recorder.notice(
            "layout", f"pl.gather_row(transpose={transpose}): {describe(into)} {about} with transpose=True"
        )
    if len(box) != len(src.shape) or len(box) != len(into.shape):
        raise fault(f"pl.gather_row: a box {list(box)} of {describe(src)} into {describe(into)}")
    valid = inside(src, box, src_offset, None if valid_shape is None else shape_of(valid_shape), False, "gather_row")
    tile = load_box(run, src, position(src, src_offset), box, valid, op=GATHER_ROW, into=into)
    within = (valid or box)[::-1] if transpose else valid or box
    check_bounds("gather_row", into.shape, dst_offset, within, "the tile")
    if into.array is not None:
        run.shapes.only_first()  # the next turn finds what this one wrote
        if tile.array is None:
            into.array = None
        else:
            array = tile.array[window(valid or box)]
            into.writable()[window(within, [int(o) for o in dst_offset])] = array.T if transpose else array
    return into
