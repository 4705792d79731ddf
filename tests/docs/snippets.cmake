# Makes programs of the C++ in a document, so that no copy of it is kept anywhere.
#
# A ```cpp block with a main() is a program. Any other stands in the frame of docs/library/README.md, the block that
# has the line "  // ...", in place of that line. If a ```text block follows, the program is run, and must say what
# stands there; else it is only compiled.
#
# The programs of one document are one executable, so that what they include is parsed once: each one's main() stands in a
# namespace of its own, and the variable DDPRUN_SNIPPET chooses one by its number.

set(frame_line "  // ...\n")

# cut_block(TEXT LANGUAGE BLOCK BEFORE): removes everything up to the end of the first block of that language from the
# variable TEXT. BLOCK becomes the block's content, "" if there is none, and BEFORE the text before it.
macro(cut_block text language block before)
  string(FIND "${${text}}" "\n```${language}\n" at)
  set(${block} "")
  if(NOT at EQUAL -1)
    string(SUBSTRING "${${text}}" 0 ${at} ${before})
    string(SUBSTRING "${${text}}" ${at} -1 ${text})
    string(REGEX REPLACE "^\n```${language}\n" "" ${text} "${${text}}")
    string(FIND "${${text}}" "```\n" at)
    string(SUBSTRING "${${text}}" 0 ${at} ${block})
    string(SUBSTRING "${${text}}" ${at} -1 ${text})
    string(REGEX REPLACE "^```" "" ${text} "${${text}}")
  endif()
endmacro()

# Writes the file only if its content changes, so that nothing is compiled again.
function(write_if_new path content)
  file(WRITE "${path}.new" "${content}")
  configure_file("${path}.new" "${path}" COPYONLY)
endfunction()

# document_snippets(PATH FRAME): makes a program of each block, and a test for each whose output is shown.
function(document_snippets path frame)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  file(RELATIVE_PATH document "${PROJECT_SOURCE_DIR}/docs" "${path}")
  string(REGEX REPLACE "^\\.\\./" "" document "${document}")
  string(MAKE_C_IDENTIFIER "snippets_${document}" program)
  set(number 0)
  set(heading "")
  set(includes "")
  set(bodies "")
  set(cases "")
  while(TRUE)
    cut_block(text cpp code before)
    if(code STREQUAL "")
      break()
    endif()
    if(before MATCHES "\n## ")
      string(REGEX REPLACE ".*\n## ([^\n]*).*" "\\1" heading "${before}")
    endif()
    set(expected "")
    if(text MATCHES "^\n+```text\n")
      cut_block(text text expected before)
    endif()
    math(EXPR number "${number} + 1")
    if(NOT code MATCHES "int main\\(")
      string(REPLACE "${frame_line}" "${code}" code "${frame}")
    endif()
    string(REGEX MATCHALL "#include [^\n]*\n" own_includes "${code}")
    list(APPEND includes ${own_includes})
    string(REGEX REPLACE "#include [^\n]*\n" "" code "${code}")
    # A main() in a namespace has to return by itself.
    string(REPLACE "int main() {}" "int main() { return 0; }" code "${code}")
    string(REGEX REPLACE "}\n+$" "  return 0;\n}\n" code "${code}")
    string(APPEND bodies "\n// ---- ${heading} ----\nnamespace snippet_${number} {\n${code}}  // namespace snippet_${number}\n")
    string(APPEND cases "    case ${number}: return run(snippet_${number}::main, argc, argv);\n")
    if(NOT expected STREQUAL "")
      set(shown "${CMAKE_CURRENT_BINARY_DIR}/${program}_${number}.txt")
      write_if_new("${shown}" "${expected}")
      set(name "${document}: snippet ${number} (${heading}) says what stands below it")
      add_test(NAME "${name}" COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/snippet_test.sh" "$<TARGET_FILE:ddprun>"
        "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${program}" "${shown}")
      set_tests_properties("${name}" PROPERTIES LABELS integration TIMEOUT 120 ENVIRONMENT "DDPRUN_SNIPPET=${number}")
    endif()
  endwhile()
  if(number EQUAL 0)
    message(FATAL_ERROR "${path}: no C++ found")
  endif()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "" includes)
  write_if_new("${CMAKE_CURRENT_BINARY_DIR}/${program}.cpp" "// ${document}
${includes}#include <cstdlib>

namespace {
int run(int (&main)(), int, char**) { return main(); }
int run(int (&main)(int, char**), int argc, char** argv) { return main(argc, argv); }
}  // namespace
${bodies}
int main(int argc, char** argv) {
  const char* number = std::getenv(\"DDPRUN_SNIPPET\");
  switch (number ? std::atoi(number) : 0) {
${cases}    default: return 2;
  }
}
")
  add_executable(${program} "${CMAKE_CURRENT_BINARY_DIR}/${program}.cpp")
  set_target_properties(${program} PROPERTIES CXX_STANDARD 17)
  # Not everything in the frame is used by every snippet.
  target_compile_options(${program} PRIVATE -Wall -Wextra -Wpedantic -Wno-unused-variable -Wno-unused-function -Werror)
  target_link_libraries(${program} PRIVATE ddprun::training)
endfunction()
