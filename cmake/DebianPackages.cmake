# Debian's packages of this build, which scripts/packaging/debs makes with CPack: ddprun (the programs and the manual page),
# libddp1 (the library and its backend) and libddp-dev (what C and C++ programs are built with). Their documents are not
# part of an ordinary installation.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "ddprun maintainers <maintainers@ddprun.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")  # libddp_training needs libddp
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

get_target_property(so_version ddp SOVERSION)
set(library_package "libddp${so_version}")
set(folder "${PROJECT_BINARY_DIR}/debian")
string(TIMESTAMP day "%a, %d %b %Y %H:%M:%S +0000" UTC)  # CMake takes SOURCE_DATE_EPOCH, if it is set
file(READ LICENSE licence)
# GCC's build has no libc++, whose licences come last; and Debian wants a reference to its own copy of the GPL.
file(READ THIRD_PARTY.txt third_party)
string(FIND "${third_party}" "libc++, libc++abi" first_of_llvm)
string(SUBSTRING "${third_party}" 0 ${first_of_llvm} third_party)
string(REGEX REPLACE "=+\n$" "" third_party "${third_party}")
file(WRITE "${folder}/copyright" "${licence}
${third_party}
On Debian, the GNU General Public License 3 is in /usr/share/common-licenses/GPL-3.
")

# debian_package(NAME SECTION COMPONENTS... DESCRIPTION first line, and lines of a paragraph)
set(CPACK_COMPONENTS_ALL "")
function(debian_package name section)
  cmake_parse_arguments(PARSE_ARGV 2 package "" "" "COMPONENTS;DESCRIPTION")
  file(WRITE "${folder}/${name}/changelog" "${name} (${PROJECT_VERSION}) unstable; urgency=medium

  * CHANGELOG.md of the sources says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${day}
")
  execute_process(COMMAND gzip -9nf changelog WORKING_DIRECTORY "${folder}/${name}" COMMAND_ERROR_IS_FATAL ANY)
  install(FILES "${folder}/copyright" "${folder}/${name}/changelog.gz" DESTINATION "share/doc/${name}"
          COMPONENT debian_${name} EXCLUDE_FROM_ALL)

  string(TOUPPER ${name} group)
  foreach(component IN LISTS package_COMPONENTS ITEMS debian_${name})
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    string(TOUPPER ${component} upper)
    set(CPACK_COMPONENT_${upper}_GROUP ${name} PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENTS_ALL "${CPACK_COMPONENTS_ALL}" PARENT_SCOPE)
  list(JOIN package_DESCRIPTION "\n" description)
  set(CPACK_COMPONENT_${group}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${group}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${group}_PACKAGE_SECTION ${section} PARENT_SCOPE)
endfunction()

debian_package(ddprun science COMPONENTS Unspecified debian_manual DESCRIPTION
  "native launcher of distributed training jobs"
  "Starts, watches and restarts the worker processes of a training job on one"
  "or more nodes: a native replacement for PyTorch's torchrun, for PyTorch"
  "scripts and any other program. Also has ddp_store, a server of PyTorch's"
  "TCPStore."
  "."
  "When workers hang, ddprun says where: of native code with elfutils, of"
  "Python with py-spy, which is no package of Debian (pip install py-spy).")
set(CPACK_DEBIAN_DDPRUN_PACKAGE_RECOMMENDS elfutils)
debian_package(${library_package} libs COMPONENTS libddp DESCRIPTION
  "process groups and collectives for C and C++ workers"
  "Lets C and C++ programs be the workers of a distributed training job:"
  "process groups, collectives over Gloo and NCCL, averaging of gradients,"
  "checkpoints; and a training kit: optimizers, scaling of losses, clipping.")
debian_package(libddp-dev libdevel COMPONENTS libddp_dev DESCRIPTION
  "process groups and collectives for C and C++ workers (development)"
  "The headers of libddp and of its training kit, and their files for CMake"
  "and pkg-config.")
set(CPACK_DEBIAN_LIBDDP-DEV_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION})")

# The library's package says which of its versions a program needs that was linked with it, and has ldconfig run.
string(TOUPPER ${library_package} group)
file(WRITE "${folder}/shlibs" "libddp ${so_version} ${library_package} (>= ${PROJECT_VERSION})
libddp_training ${so_version} ${library_package} (>= ${PROJECT_VERSION})
")
file(WRITE "${folder}/triggers" "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_${group}_PACKAGE_CONTROL_EXTRA "${folder}/shlibs;${folder}/triggers")

# Debian's manual pages are compressed. A build for another processor has none (apps/ddprun/CMakeLists.txt).
if(TARGET ddprun_man)
  set(man_page "${PROJECT_BINARY_DIR}/apps/ddprun/ddprun.1")
  add_custom_command(OUTPUT "${folder}/ddprun.1.gz"
    COMMAND gzip -9nc "${man_page}" > "${folder}/ddprun.1.gz"
    DEPENDS ddprun_man "${man_page}"
    VERBATIM)
  add_custom_target(debian_man ALL DEPENDS "${folder}/ddprun.1.gz")
  install(FILES "${folder}/ddprun.1.gz" DESTINATION share/man/man1 COMPONENT debian_manual EXCLUDE_FROM_ALL)
endif()

include(CPack)
