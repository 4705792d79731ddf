# Toolchain of the presets portable and portable-aarch64: programs and a libddp.so that start on every Linux with
# glibc 2.28 or newer (RHEL 8, Debian 10, Ubuntu 18.10 and all since). The compiler is clang as PyPI's ziglang brings it,
# with stubs of that glibc to link with and a libc++ to link statically. scripts/packaging/compiler fetches it.
set(DDPRUN_PORTABLE_PROCESSOR x86_64 CACHE STRING "Processor that a portable build is for: x86_64 or aarch64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDPRUN_PORTABLE_PROCESSOR)

get_filename_component(repository "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
set(compiler_folder "${repository}/build/compiler")
set(tools "${compiler_folder}/${DDPRUN_PORTABLE_PROCESSOR}")
get_property(is_trial GLOBAL PROPERTY IN_TRY_COMPILE)
if(NOT is_trial)
  execute_process(COMMAND "${repository}/scripts/packaging/compiler" "${DDPRUN_PORTABLE_PROCESSOR}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "scripts/packaging/compiler ${DDPRUN_PORTABLE_PROCESSOR} failed: see above")
  endif()
endif()

# Says that the build is portable, and with what: "ziglang 0.17.1 for x86_64, glibc 2.28".
file(READ "${tools}/complete" DDPRUN_PORTABLE_COMPILER)
string(REGEX REPLACE "; .*" "" DDPRUN_PORTABLE_COMPILER "${DDPRUN_PORTABLE_COMPILER}")
file(GLOB DDPRUN_PORTABLE_LIBRARY "${compiler_folder}/venv/lib/python3*/site-packages/ziglang/lib")

# A CMAKE_SYSTEM_NAME says that what is built does not run here.
if(NOT DDPRUN_PORTABLE_PROCESSOR STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR "${DDPRUN_PORTABLE_PROCESSOR}")
endif()
set(CMAKE_C_COMPILER "${tools}/cc")
set(CMAKE_CXX_COMPILER "${tools}/c++")
set(CMAKE_AR "${tools}/ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${tools}/ranlib" CACHE FILEPATH "")

# CMake finds Debian's packages of headers as on this machine; of the libraries, libsodium's alone is linked.
set(CMAKE_LIBRARY_ARCHITECTURE "${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu")
set(SODIUM_STATIC_LIBRARY "${tools}/lib/libsodium.a" CACHE FILEPATH "")
# Where they say -isystem /usr/include, DdprunTargets.cmake leaves it out.
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES "${compiler_folder}/include")
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES "${compiler_folder}/include")
# clang makes programs with fixed addresses unless it is asked. What else hardens them is in DdprunTargets.cmake.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-z,defs")  # a function that this glibc lacks is an error, as in programs
# Functions that the compiler calls, such as the look at what the processor can do. zig's own library of them is one object
# file, which has slow memcpy, memset, strlen and exp as well: a program that needs any of it gets these, not those of libc.
foreach(language C CXX)
  set(CMAKE_${language}_STANDARD_LIBRARIES_INIT "${tools}/lib/libgcc.a")
endforeach()
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_MINSIZEREL_INIT "-s")
endforeach()
