#!/usr/bin/env python3
"""Compiles training_kernels.cu for each kind of GPU with NVRTC, and writes the results as a C++ source.

compile_kernels.py NVRTC_LIBRARY REPOSITORY OUTPUT.cpp

NVRTC is a library (PyPI: nvidia-cuda-nvrtc-cu12); it needs no GPU, no driver and no compiler of the host. With
NVRTC_LIBRARY "" the source has no kernels in it, and libddp says so when they are asked for.
"""
import ctypes
import os
import sys

# The oldest GPU of each major number: code for it runs on all others with that number.
ARCHITECTURES = (75, 80, 90, 100, 120)
OPTIONS = (
    "--std=c++20",
    "--device-as-default-execution-space",  # headers that the host shares need no mark
    "--fmad=false",  # the CPU's bits: it does not fuse either, since not every processor can
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
)


class Nvrtc:
    def __init__(self, path):
        folder = os.path.dirname(path)
        for name in sorted(os.listdir(folder)) if folder else ():  # NVRTC opens it by name, wherever it is
            if name.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(self, result, what):
        if result != 0:
            sys.exit(f"compile_kernels.py: {what}: {self.library.nvrtcGetErrorString(result).decode()}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking for the version")
        return major.value, minor.value

    def sized(self, program, size_function, function):
        size = ctypes.c_size_t()
        self.check(getattr(self.library, size_function)(program, ctypes.byref(size)), size_function)
        text = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.library, function)(program, text), function)
        return text.raw

    def compile(self, source, name, options):
        program = ctypes.c_void_p()
        self.check(
            self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None),
            "making a program",
        )
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = self.library.nvrtcCompileProgram(program, len(options), given)
        log = self.sized(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode()
        if log:
            print(log, file=sys.stderr)
        self.check(result, f"compiling {name}")
        cubin = self.sized(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return cubin


def compile_all(library, repository):
    nvrtc = Nvrtc(library)
    major, minor = nvrtc.version()
    if major != 12 or minor < 8:  # 13's code needs a driver of CUDA 13; before 12.8 there is no sm_100
        sys.exit(f"compile_kernels.py: {library} is NVRTC {major}.{minor}, but 12.8 or 12.9 is needed")
    folder = os.path.join(repository, "runtime/training/kernels")
    with open(os.path.join(folder, "training_kernels.cu"), encoding="utf-8") as file:
        source = file.read()
    includes = (f"-I{repository}", f"-I{folder}/standard")
    return [
        (arch, nvrtc.compile(source, "training_kernels.cu", OPTIONS + includes + (f"--gpu-architecture=sm_{arch}",)))
        for arch in ARCHITECTURES
    ]


def source_of(images):
    lines = [
        "// Made by compile_kernels.py.",
        '#include "runtime/training/cuda/kernel_images.hpp"',
        "",
        "namespace ddp::runtime {",
        "namespace {",
    ]
    for arch, cubin in images:
        lines.append(f"alignas(16) const unsigned char kImage{arch}[] = {{")
        lines += [",".join(map(str, cubin[i : i + 32])) + "," for i in range(0, len(cubin), 32)]
        lines.append("};")
    lines += ["}  // namespace", "", "const std::vector<KernelImage>& kernel_images() {"]
    rows = ", ".join(f"{{{arch // 10}, {arch % 10}, kImage{arch}, sizeof kImage{arch}}}" for arch, _ in images)
    lines += [f"  static const std::vector<KernelImage> images = {{{rows}}};", "  return images;", "}", ""]
    lines += ["}  // namespace ddp::runtime", ""]
    return "\n".join(lines)


def main():
    library, repository, output = sys.argv[1:]
    text = source_of(compile_all(library, repository) if library else [])
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
