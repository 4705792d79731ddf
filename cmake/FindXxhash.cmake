# Defines xxhash::header: the library as a header only, so that there is nothing to link.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
mark_as_advanced(XXHASH_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Xxhash
  REQUIRED_VARS XXHASH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install xxHash's header (Debian: libxxhash-dev)")

if(Xxhash_FOUND AND NOT TARGET xxhash::header)
  add_library(xxhash::header INTERFACE IMPORTED)
  set_target_properties(xxhash::header PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XXHASH_INCLUDE_DIR}")
endif()
