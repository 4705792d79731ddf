# cmake -DNM=... -DLIBRARY=... -DHEADER=... -P exports.cmake: the library exports the functions that its header declares,
# each of them and nothing else. A header declares with DDP_API, or names its one symbol in a _SYMBOL macro. -DFURTHER=...:
# what is exported beside that.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^ \n]+\n" exported "${symbols}")
list(TRANSFORM exported STRIP)

file(READ "${HEADER}" text)
string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")  # without comments
string(REGEX MATCHALL "DDP_API [^;(]*[ *\n]ddp_[a-z0-9_]+\\(|_SYMBOL \"[a-z0-9_]+\"" declared "${text}")
list(TRANSFORM declared REPLACE ".*[ *\n\"]([a-z0-9_]+)[(\"]$" "\\1")
list(APPEND declared ${FURTHER})
list(LENGTH declared count)
if(count EQUAL 0)
  message(FATAL_ERROR "${HEADER} declares nothing")
endif()

foreach(symbol IN LISTS exported)
  if(NOT symbol IN_LIST declared)
    message(SEND_ERROR "${LIBRARY} exports ${symbol}, which ${HEADER} does not declare")
  endif()
endforeach()
foreach(symbol IN LISTS declared)
  if(NOT symbol IN_LIST exported)
    message(SEND_ERROR "${HEADER} declares ${symbol}, which ${LIBRARY} does not export")
  endif()
endforeach()
message(STATUS "${count} functions")
