# SPDX-License-Identifier: BSD-3-Clause
"""libddp's checkpoints and the safetensors package read each other's files, including those of checkpoint folders.

    python test_safetensors_interop.py path/to/libddp.so

Needs the packages safetensors and numpy. Exit code 77 (skipped) if they are not installed.
"""

import ctypes
import os
import sys
import tempfile

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DTYPES = ["float32", "float64", "int32", "int64", "uint8"]  # in the order of ddp_dtype


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("device", Device),
    ]


class MetadataEntry(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int32), ("device", Device)]


class Slice(ctypes.Structure):
    _fields_ = [
        ("part", Tensor),
        ("offset", ctypes.POINTER(ctypes.c_int64)),
        ("whole_shape", ctypes.POINTER(ctypes.c_int64)),
    ]


def make_tensors():
    random = numpy.random.default_rng(1)
    tensors = {}
    for dtype in DTYPES:
        tensors[f"matrix.{dtype}"] = (random.random((3, 5)) * 100).astype(dtype)
        tensors[f"scalar.{dtype}"] = numpy.array(7, dtype=dtype)
        tensors[f"odd.{dtype}"] = numpy.arange(7, dtype=dtype)
        tensors[f"empty.{dtype}"] = numpy.zeros((0, 2), dtype=dtype)
    tensors['quoted "näme"'] = numpy.ones(1, dtype="float32")
    return tensors


def shape_of(array):
    return (ctypes.c_int64 * array.ndim)(*array.shape)


def check(lib, status):
    assert status == 0, lib.ddp_error_last().decode()


def save_with_libddp(lib, path, tensors, metadata):
    shapes = [shape_of(a) for a in tensors.values()]
    c_tensors = (Tensor * len(tensors))(
        *[
            Tensor(name.encode(), array.ctypes.data, DTYPES.index(str(array.dtype)), shape, array.ndim)
            for (name, array), shape in zip(tensors.items(), shapes)
        ]
    )
    c_metadata = (MetadataEntry * len(metadata))(*[MetadataEntry(k.encode(), v.encode()) for k, v in metadata.items()])
    check(lib, lib.ddp_checkpoint_save(path.encode(), c_tensors, len(tensors), c_metadata, len(metadata)))


def read_with_libddp(lib, path, expected, metadata):
    checkpoint = ctypes.c_void_p()
    check(lib, lib.ddp_checkpoint_open(path.encode(), ctypes.byref(checkpoint)))
    for key, value in metadata.items():
        assert lib.ddp_checkpoint_metadata(checkpoint, key.encode()) == value.encode(), key
    for name, array in expected.items():
        read = numpy.empty_like(array)
        buffer = Buffer(read.ctypes.data, read.size, DTYPES.index(str(array.dtype)), Device(0, 0))
        check(lib, lib.ddp_checkpoint_read(checkpoint, name.encode(), buffer, shape_of(array), array.ndim))
        assert read.tobytes() == array.tobytes(), name
    lib.ddp_checkpoint_close(checkpoint)


def check_folder(lib, place, tensors, metadata):
    """The package reads what libddp saves in a folder, whole tensors and slices."""
    folder = ctypes.c_void_p()
    check(lib, lib.ddp_checkpoint_folder_create(None, place.encode(), None, ctypes.byref(folder)))
    matrix = tensors["matrix.float64"]
    halves = [matrix[:2].copy(), matrix[2:].copy()]
    shapes = [shape_of(a) for a in [*tensors.values(), *halves]]
    offsets = [(ctypes.c_int64 * 2)(0, 0), (ctypes.c_int64 * 2)(2, 0)]
    slices = [
        Slice(Tensor(name.encode(), array.ctypes.data, DTYPES.index(str(array.dtype)), shape, array.ndim))
        for (name, array), shape in zip(tensors.items(), shapes)
    ] + [
        Slice(Tensor(b"halved", array.ctypes.data, DTYPES.index("float64"), shape, 2), offset, shape_of(matrix))
        for array, shape, offset in zip(halves, shapes[len(tensors):], offsets)
    ]
    c_metadata = (MetadataEntry * len(metadata))(*[MetadataEntry(k.encode(), v.encode()) for k, v in metadata.items()])
    check(lib, lib.ddp_checkpoint_folder_save(
        folder, 7, (Slice * len(slices))(*slices), len(slices), c_metadata, len(metadata)))
    lib.ddp_checkpoint_folder_destroy(folder)

    step = os.path.join(place, "step-000000007")
    with safe_open(os.path.join(step, "model.safetensors"), framework="numpy") as file:
        assert file.metadata() == metadata, file.metadata()
        assert set(file.keys()) == set(tensors) | {"halved[0:2, 0:5]", "halved[2:3, 0:5]"}, file.keys()
        for name, array in tensors.items():
            assert file.get_tensor(name).tobytes() == array.tobytes(), name
        both = [file.get_tensor("halved[0:2, 0:5]"), file.get_tensor("halved[2:3, 0:5]")]
        assert numpy.concatenate(both).tobytes() == matrix.tobytes()
    read_with_libddp(lib, step, {**tensors, "halved": matrix}, metadata)


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.ddp_error_last.restype = ctypes.c_char_p
    lib.ddp_checkpoint_metadata.restype = ctypes.c_char_p
    lib.ddp_checkpoint_metadata.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.ddp_checkpoint_read.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, Buffer, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t,
    ]
    lib.ddp_checkpoint_save.argtypes = [
        ctypes.c_char_p, ctypes.POINTER(Tensor), ctypes.c_size_t, ctypes.POINTER(MetadataEntry), ctypes.c_size_t,
    ]
    lib.ddp_checkpoint_close.argtypes = [ctypes.c_void_p]
    lib.ddp_checkpoint_folder_create.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
    ]
    lib.ddp_checkpoint_folder_save.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(Slice), ctypes.c_size_t, ctypes.POINTER(MetadataEntry),
        ctypes.c_size_t,
    ]
    lib.ddp_checkpoint_folder_destroy.argtypes = [ctypes.c_void_p]
    tensors = make_tensors()
    metadata = {"step": "7", "format": "ddp", "ünïcode": "wért"}
    with tempfile.TemporaryDirectory() as folder:
        ours = os.path.join(folder, "ours.safetensors")
        save_with_libddp(lib, ours, tensors, metadata)
        with safe_open(ours, framework="numpy") as file:
            assert file.metadata() == metadata, file.metadata()
            assert set(file.keys()) == set(tensors)
            for name, array in tensors.items():
                read = file.get_tensor(name)
                assert read.dtype == array.dtype and read.shape == array.shape, name
                assert read.tobytes() == array.tobytes(), name
        theirs = os.path.join(folder, "theirs.safetensors")
        save_file(tensors, theirs, metadata=metadata)
        read_with_libddp(lib, theirs, tensors, metadata)
        # libddp has no complex numbers, and reads booleans as bytes.
        mask = numpy.array([True, False, True])
        save_file({**tensors, "complex": numpy.ones(3, "complex64"), "mask": mask}, theirs, metadata=metadata)
        read_with_libddp(lib, theirs, {**tensors, "mask": mask.view("uint8")}, metadata)
        check_folder(lib, os.path.join(folder, "steps"), tensors, metadata)
    print(f"{len(tensors)} tensors, both ways: equal")


if __name__ == "__main__":
    main()
