# Installs this build into a folder of its own, builds the project that docs/library/README.md begins with against it,
# and runs that: first alone, then as two ranks started by hand.
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
foreach(component IN ITEMS libddp libddp_dev)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix" --component ${component}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/build" -G "${GENERATOR}"
                        "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

set(program "${WORK}/build/my_trainer")
set(clean "${CMAKE_COMMAND}" -E env --unset=RANK --unset=WORLD_SIZE --unset=MASTER_ADDR --unset=MASTER_PORT
          --unset=TORCHELASTIC_USE_AGENT_STORE --unset=DDP_BACKEND_PATH)
execute_process(COMMAND ${clean} "${program}" OUTPUT_VARIABLE alone COMMAND_ERROR_IS_FATAL ANY)
if(NOT alone STREQUAL "rank 0 of 1: the ranks add up to 0\n")
  message(FATAL_ERROR "alone it said: ${alone}")
endif()

# In a pipeline both run at the same time, and CMake returns the output of the last, rank 1. Rank 0 writes to a file:
# rank 1 may have ended by then, and nobody reads a pipe between them.
execute_process(COMMAND "${FREE_PORT}" OUTPUT_VARIABLE port OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
set(job WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "MASTER_PORT=${port}")
execute_process(COMMAND ${clean} RANK=0 ${job} sh -c "exec \"$0\" >\"$1\"" "${program}" "${WORK}/rank 0"
                COMMAND ${clean} RANK=1 ${job} "${program}"
                OUTPUT_VARIABLE pair RESULTS_VARIABLE codes TIMEOUT 60)
file(READ "${WORK}/rank 0" first)
if(NOT codes STREQUAL "0;0" OR NOT first STREQUAL "rank 0 of 2: the ranks add up to 1\n" OR
   NOT pair STREQUAL "rank 1 of 2: the ranks add up to 1\n")
  message(FATAL_ERROR "two ranks ended with ${codes} and said: ${first}${pair}")
endif()
