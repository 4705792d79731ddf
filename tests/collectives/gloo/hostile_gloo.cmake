# cmake -DNM=... -DLIBRARY=libgloo.so -DOUTPUT=....c -P hostile_gloo.cmake: a C file with the functions of Gloo's that the
# library exports, each of which says its name and aborts.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [TW] _ZNK?4gloo[A-Za-z0-9_]+" functions "${symbols}")
list(LENGTH functions count)
if(count LESS 100)
  message(FATAL_ERROR "${LIBRARY}: only ${count} functions are Gloo's")
endif()
list(TRANSFORM functions REPLACE "^ [TW] (.*)$" "HOSTILE(\\1)")
list(JOIN functions "\n" functions)
file(WRITE "${OUTPUT}" "/* Made by hostile_gloo.cmake from ${LIBRARY}. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stop(const char* name) {
  static const char what[] = \" was called in the wrong library\\n\";
  if (write(2, name, strlen(name)) < 0 || write(2, what, sizeof what - 1) < 0) _exit(3);
  abort();
}

#define HOSTILE(name) \\
  void name(void); \\
  void name(void) { stop(#name); }

${functions}
")
