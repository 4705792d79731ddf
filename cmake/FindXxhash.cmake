# Defines xxhash::header: the library as a header only, so that there is nothing to link.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
mark_as_advanced(XXHASH_INCLUDE_DIR)

if(XXHASH_INCLUDE_DIR)
  set(Xxhash_VERSION "")
  foreach(part MAJOR MINOR RELEASE)
    file(STRINGS "${XXHASH_INCLUDE_DIR}/xxhash.h" line REGEX "define XXH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" number "${line}")
    list(APPEND Xxhash_VERSION "${number}")
  endforeach()
  string(JOIN "." Xxhash_VERSION ${Xxhash_VERSION})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Xxhash
  VERSION_VAR Xxhash_VERSION
  REQUIRED_VARS XXHASH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install xxHash's header (Debian: libxxhash-dev)")

if(Xxhash_FOUND AND NOT TARGET xxhash::header)
  add_library(xxhash::header INTERFACE IMPORTED)
  set_target_properties(xxhash::header PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XXHASH_INCLUDE_DIR}")
endif()
