# The C++ in a document, made into programs: no copy of it is kept anywhere.
#
# A ```cpp block with a main() is a program. Any other stands in library.md's frame, the block that has the line
# "  // ...", in place of that line. If a ```text block follows, the program is run, and must say what stands there;
# else it is only compiled.

set(frame_line "  // ...\n")

# Cuts the first ```cpp block off `text`, a variable's name: its code, what it must say (may be empty), and the last
# heading before it, which stays what it was if there is none. Sets code to "" if there is no block any more.
macro(next_snippet text code expected heading)
  string(FIND "${${text}}" "\n```cpp\n" at)
  set(${code} "")
  set(${expected} "")
  if(NOT at EQUAL -1)
    string(SUBSTRING "${${text}}" 0 ${at} before)
    string(FIND "${before}" "\n## " heading_at REVERSE)
    if(NOT heading_at EQUAL -1)
      string(SUBSTRING "${before}" ${heading_at} -1 before)
      string(REGEX MATCH "## ([^\n]*)" ignored "${before}")
      set(${heading} "${CMAKE_MATCH_1}")
    endif()
    math(EXPR at "${at} + 8")
    string(SUBSTRING "${${text}}" ${at} -1 ${text})
    string(FIND "${${text}}" "```\n" end)
    string(SUBSTRING "${${text}}" 0 ${end} ${code})
    math(EXPR end "${end} + 4")
    string(SUBSTRING "${${text}}" ${end} -1 ${text})
    if("${${text}}" MATCHES "^\n?```text\n")
      string(REGEX REPLACE "^\n?```text\n" "" ${text} "${${text}}")
      string(FIND "${${text}}" "```\n" end)
      string(SUBSTRING "${${text}}" 0 ${end} ${expected})
      # The closing line stays: a block may follow at once.
      string(SUBSTRING "${${text}}" ${end} -1 ${text})
    endif()
  endif()
endmacro()

# A file that is written only if that changes it, so that nothing is compiled anew.
function(write_if_new path content)
  file(WRITE "${path}.new" "${content}")
  configure_file("${path}.new" "${path}" COPYONLY)
endfunction()

# document_snippets(PATH FRAME): a program for each block, below the current folder; a test for each that says something.
function(document_snippets path frame)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  get_filename_component(document "${path}" NAME)
  set(number 0)
  set(heading "")
  while(TRUE)
    next_snippet(text code expected heading)
    if(code STREQUAL "")
      break()
    endif()
    math(EXPR number "${number} + 1")
    if(NOT code MATCHES "int main\\(")
      string(REPLACE "${frame_line}" "${code}" code "${frame}")
    endif()
    string(MAKE_C_IDENTIFIER "snippet_${document}_${number}" program)
    write_if_new("${CMAKE_CURRENT_BINARY_DIR}/${program}.cpp" "// ${document}, ${heading}\n${code}")
    add_executable(${program} "${CMAKE_CURRENT_BINARY_DIR}/${program}.cpp")
    set_target_properties(${program} PROPERTIES CXX_STANDARD 17)
    # Not everything in the frame is used by every snippet.
    target_compile_options(${program} PRIVATE -Wall -Wextra -Wpedantic -Wno-unused-variable -Werror)
    target_link_libraries(${program} PRIVATE ddprun::ddp)
    if(NOT expected STREQUAL "")
      write_if_new("${CMAKE_CURRENT_BINARY_DIR}/${program}.txt" "${expected}")
      set(name "${document}: snippet ${number} (${heading}) says what stands below it")
      add_test(NAME "${name}" COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/snippet_test.sh" "$<TARGET_FILE:ddprun>"
        "$<TARGET_FILE:${program}>" "${CMAKE_CURRENT_BINARY_DIR}/${program}.txt")
      set_tests_properties("${name}" PROPERTIES LABELS integration TIMEOUT 120)
    endif()
  endwhile()
  if(number EQUAL 0)
    message(FATAL_ERROR "${path}: no C++ found")
  endif()
endfunction()
