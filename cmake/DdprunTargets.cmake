# Settings that all targets of this project share: language level, warnings, sanitizers, output folders.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# bin/ and lib/ side by side, as in an installed tree: $ORIGIN/../lib is right in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
# In the build tree too: CMake would fill a shorter path up with ":", and each of these empty elements is the working
# directory, in which anybody may have put a libc.
set(CMAKE_BUILD_RPATH "${CMAKE_INSTALL_RPATH}")

# Clones share the compiler cache, wherever they lie: ccache writes paths below the base folder relative to the build folder
# and does not hash that one. Whatever form a path has, debug information, __FILE__ and Catch2 name it from the root of the
# repository ("tests/launcher/agent/agent_core_test.cpp"), so that no clone shows another one's files. gdb finds the sources
# when it is started there; from elsewhere: `directory ROOT`.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1)
  if(DDPRUN_PORTABLE_COMPILER)  # each clone has a copy of it, which ccache would take for another one by its time
    list(APPEND CMAKE_C_COMPILER_LAUNCHER CCACHE_COMPILERTYPE=clang "CCACHE_COMPILERCHECK=string:${DDPRUN_PORTABLE_COMPILER}")
  endif()
  list(APPEND CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
file(RELATIVE_PATH to_root "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
add_compile_options("-ffile-prefix-map=${to_root}=" "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")

# GCC collects its garbage from 128 MiB on; from 512 MiB on it compiles in a fifth less time, and takes a quarter more memory.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)

# What turns a mistake of ours with memory into a clean end: checks of the library's containers and of libc's functions,
# canaries on the stack, and tables of functions that are read-only once the program runs. Programs that link libddp
# choose for themselves.
add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
add_compile_options(-fstack-protector-strong)
if(NOT DDPRUN_SANITIZE AND NOT DDPRUN_FUZZ)  # sanitizers check the same functions; without -O nothing does
  set(optimised "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")
  add_compile_options($<${optimised}:-U_FORTIFY_SOURCE> $<${optimised}:-D_FORTIFY_SOURCE=3>)
endif()
add_link_options(LINKER:-z,relro LINKER:-z,now)
if(DDPRUN_PORTABLE_COMPILER)
  # Packages of headers say -isystem /usr/include, where this machine's C library is; CMake leaves out what a compiler has
  # by itself.
  foreach(language C CXX)
    list(APPEND CMAKE_${language}_IMPLICIT_INCLUDE_DIRECTORIES /usr/include)
  endforeach()
  # libc++ takes this, not _GLIBCXX_ASSERTIONS. EXTENSIVE checks in constant time each index, empty container and optional;
  # ENFORCE says what is wrong and aborts. zig's own settings, which come first, are NONE and IGNORE, and only both together
  # take effect.
  foreach(setting _LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_EXTENSIVE
                  _LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_ENFORCE)
    string(REGEX REPLACE "=.*" "" name "${setting}")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U${name}> $<$<COMPILE_LANGUAGE:CXX>:-D${setting}>)
  endforeach()
  # The linker leaves out what no program uses, function by function.
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(LINKER:--gc-sections)
  # These checks name libc++'s files, which lie elsewhere on each machine.
  add_compile_options("-ffile-prefix-map=${DDPRUN_PORTABLE_LIBRARY}=zig")
  # The processor checks where calls, jumps and returns lead.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    add_compile_options(-fcf-protection=full)
  else()
    add_compile_options(-mbranch-protection=standard)
  endif()
endif()

if(DDPRUN_SANITIZE)
  add_compile_options(-fsanitize=${DDPRUN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DDPRUN_SANITIZE})
  if(DDPRUN_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)  # Asio fences; GCC warns that TSan does not model them
  endif()
  if(DDPRUN_SANITIZE MATCHES "undefined")
    # The vptr check opens a pipe, and reports a bad object where a test has used up all descriptors.
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
endif()

# ddprun_target(NAME [AS_ONE FILES]): sets the project's warnings, and includes written from the repository root
# ("rendezvous/base/error.hpp").
# In a unity build (CMAKE_UNITY_BUILD) the files of a folder beside the target's CMakeLists.txt, and of those below it, are
# compiled as one, which parses what they include once: names in their anonymous namespaces must differ. With AS_ONE further
# folders are added until there are that many files. A file with options of its own stays alone, as does one that tests
# replace.
function(ddprun_target name)
  cmake_parse_arguments(PARSE_ARGV 1 of "" "AS_ONE" "")
  if(NOT of_AS_ONE)
    set(of_AS_ONE 0)  # each folder by itself
  endif()
  get_target_property(is_unity ${name} UNITY_BUILD)
  if(is_unity)
    set_target_properties(${name} PROPERTIES UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${name} SOURCES)
    set(last_folder "")
    set(group "")
    set(files 0)
    foreach(source IN LISTS sources)
      get_filename_component(folder "${source}" DIRECTORY)
      string(REGEX REPLACE "/.*" "" folder "${folder}")
      if(NOT folder STREQUAL last_folder AND NOT files LESS of_AS_ONE)
        set(group "${folder}")
        set(files 0)
      endif()
      set(last_folder "${folder}")
      math(EXPR files "${files} + 1")
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${name}/${group}")
    endforeach()
  endif()
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
    # Members have default values, so an initialiser may name only some of them. GCC 12 sees uninitialised strings in variants,
    # and overlap in `"text" + string`.
    -Wno-missing-field-initializers
    # It takes the files that are compiled as one for headers.
    $<$<AND:$<BOOL:${is_unity}>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-subobject-linkage>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<BOOL:${DDPRUN_WERROR}>:-Werror>)
endfunction()

# ddprun_tests_replace(FILE...): tests link other objects in the places of these files' own, so where tests are built each
# has one to itself. The portable build shows that their folders can be compiled as one.
function(ddprun_tests_replace)
  if(DDPRUN_BUILD_TESTS)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
