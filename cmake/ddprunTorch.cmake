# Makes ddprun::torch, which is libddp and libtorch: all that a program with ddp/libtorch.hpp links. find_package(ddprun
# COMPONENTS torch) comes here.
#
# libtorch is in the folder DDPRUN_TORCH, or else where find_package(Torch) looks for it. Its own CMake files are only
# read: those of a libtorch for CUDA refuse to work without a CUDA toolkit, which these programs do not need.
if(TARGET ddprun::torch)
  return()
endif()

unset(DDPRUN_TORCH_CONFIG CACHE)  # another folder may have been given since
find_path(DDPRUN_TORCH_CONFIG TorchConfig.cmake
  HINTS "${DDPRUN_TORCH}" "${Torch_DIR}" "$ENV{Torch_DIR}" ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH
  PATH_SUFFIXES share/cmake/Torch Torch
  DOC "folder of libtorch's TorchConfig.cmake")
mark_as_advanced(DDPRUN_TORCH_CONFIG)
if(NOT DDPRUN_TORCH_CONFIG)
  set(ddprun_torch_FOUND FALSE)
  set(ddprun_NOT_FOUND_MESSAGE "libtorch was not found: add to CMAKE_PREFIX_PATH the folder where it was unpacked, or \
what python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' prints")
  return()
endif()
set(ddprun_torch_FOUND TRUE)

get_filename_component(ddprun_torch_root "${DDPRUN_TORCH_CONFIG}/../../.." ABSOLUTE)
add_library(ddprun::torch INTERFACE IMPORTED)
target_include_directories(ddprun::torch SYSTEM INTERFACE
  "${ddprun_torch_root}/include" "${ddprun_torch_root}/include/torch/csrc/api/include")
target_link_libraries(ddprun::torch INTERFACE ddprun::ddp)
file(READ "${DDPRUN_TORCH_CONFIG}/TorchConfig.cmake" ddprun_torch_says)
if(ddprun_torch_says MATCHES "cxx_std_20|CXX_STANDARD 20")
  target_compile_features(ddprun::torch INTERFACE cxx_std_20)
endif()
if(ddprun_torch_says MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
  target_compile_definitions(ddprun::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
endif()
# c10_cuda is called by ddp/libtorch.hpp with older libtorches only; libtorch_cuda is loaded because libtorch needs it.
foreach(library IN ITEMS torch torch_cpu c10 c10_cuda)
  set(ddprun_torch_file "${ddprun_torch_root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}${library}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(EXISTS "${ddprun_torch_file}")
    target_link_libraries(ddprun::torch INTERFACE "${ddprun_torch_file}")
  endif()
endforeach()
# A program calls nothing in libtorch.so itself; without that library it would have no CUDA.
target_link_options(ddprun::torch INTERFACE "LINKER:--no-as-needed")
