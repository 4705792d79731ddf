# Defines sodium::static: libsodium's static library, so that ddprun needs nothing but libc where it runs.
find_path(SODIUM_INCLUDE_DIR sodium.h)
find_library(SODIUM_STATIC_LIBRARY libsodium.a)
mark_as_advanced(SODIUM_INCLUDE_DIR SODIUM_STATIC_LIBRARY)

if(SODIUM_INCLUDE_DIR)
  file(STRINGS "${SODIUM_INCLUDE_DIR}/sodium/version.h" line REGEX "SODIUM_VERSION_STRING")
  string(REGEX MATCH "[0-9.]+" Sodium_VERSION "${line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium
  VERSION_VAR Sodium_VERSION
  REQUIRED_VARS SODIUM_STATIC_LIBRARY SODIUM_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libsodium with its static library (Debian: libsodium-dev)")

if(Sodium_FOUND AND NOT TARGET sodium::static)
  add_library(sodium::static STATIC IMPORTED)
  set_target_properties(sodium::static PROPERTIES
    IMPORTED_LOCATION "${SODIUM_STATIC_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SODIUM_INCLUDE_DIR}")
endif()
