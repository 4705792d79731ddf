# SPDX-License-Identifier: BSD-3-Clause
# Writes a zip archive of Python modules as a C++ source, so that ddprun, which is one file,
# contains it.
#
#   cmake -DNAME=warm_parent_archive "-DMODULES=NAME=FILE;NAME=FILE" -P make_archive.cmake
#
# writes warm_parent_archive.cpp, whose function of that name returns the archive.
#
# Modules are stored and not compressed, so that a Python without zlib imports them; times are the
# first that zip knows (1980-01-01), so that equal modules make equal archives. (`cmake -E tar
# --format=zip` compresses, and adds the files' owners.) The layout is the one of PKWARE's
# APPNOTE.TXT, 4.3: each file after its header, then a directory of all files, then the directory's
# place. In this script bytes are hexadecimal digits.
cmake_minimum_required(VERSION 3.25)

# Sets `result` to the number as `size` bytes, the lowest first.
function(bytes_of number size result)
  set(bytes "")
  foreach(i RANGE 1 ${size})
    math(EXPR byte "(${number} & 0xff) | 0x100" OUTPUT_FORMAT HEXADECIMAL)
    string(SUBSTRING "${byte}" 3 2 byte)
    string(APPEND bytes "${byte}")
    math(EXPR number "${number} >> 8")
  endforeach()
  set(${result} "${bytes}" PARENT_SCOPE)
endfunction()

# Sets `result` to the CRC-32 (IEEE 802.3) of the bytes.
function(crc32 bytes result)
  foreach(i RANGE 255)
    set(entry ${i})
    foreach(bit RANGE 1 8)
      math(EXPR entry "(${entry} >> 1) ^ (0xEDB88320 * (${entry} & 1))")
    endforeach()
    set(table_${i} ${entry})
  endforeach()
  set(crc 0xffffffff)
  string(REGEX MATCHALL ".." bytes "${bytes}")
  foreach(byte IN LISTS bytes)
    math(EXPR i "(${crc} ^ 0x${byte}) & 0xff")
    math(EXPR crc "(${crc} >> 8) ^ ${table_${i}}")
  endforeach()
  math(EXPR crc "${crc} ^ 0xffffffff")
  set(${result} ${crc} PARENT_SCOPE)
endfunction()

set(archive "")
set(directory "")
list(LENGTH MODULES count)
foreach(module IN LISTS MODULES)
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${module}")
  string(HEX "${CMAKE_MATCH_1}.py" name)
  file(READ "${CMAKE_MATCH_2}" content HEX)
  crc32("${content}" crc)
  string(LENGTH "${name}" name_size)
  string(LENGTH "${content}" size)
  string(LENGTH "${archive}" offset)
  foreach(length name_size size offset)
    math(EXPR ${length} "${${length}} / 2")  # two digits a byte
  endforeach()
  bytes_of(${crc} 4 crc)
  bytes_of(${size} 4 size)
  bytes_of(${name_size} 2 name_size)
  bytes_of(${offset} 4 offset)
  # Version 2.0; no flags, stored, midnight, 1980-01-01; no extra field.
  set(about "14000000000000002100${crc}${size}${size}${name_size}0000")
  string(APPEND archive "504b0304${about}${name}${content}")
  # Made by version 2.0; no comment, on the first disk, without attributes.
  string(APPEND directory "504b01021400${about}00000000000000000000${offset}${name}")
endforeach()
string(LENGTH "${archive}" offset)
string(LENGTH "${directory}" size)
math(EXPR offset "${offset} / 2")
math(EXPR size "${size} / 2")
bytes_of(${offset} 4 offset)
bytes_of(${size} 4 size)
bytes_of(${count} 2 count)
string(APPEND archive "${directory}504b050600000000${count}${count}${size}${offset}0000")

string(REGEX REPLACE "(..)" "0x\\1," numbers "${archive}")
file(WRITE "${NAME}.cpp" "// Made by make_archive.cmake.
#include \"launcher/preload/archives.hpp\"

namespace ddp::launcher {

std::string_view ${NAME}() {
  static constexpr unsigned char kBytes[] = {${numbers}};
  return {reinterpret_cast<const char*>(kBytes), sizeof kBytes};
}

}  // namespace ddp::launcher
")
