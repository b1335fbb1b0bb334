# Functions that make targets, one per kind. The sources of a library are the *.cc files of its folder, so that a new
# operator, transport or format is a new file. The declared dependencies are written to layers.txt, which
# scripts/checks/layers.py compares with the includes.

add_library(heddle_flags INTERFACE)
target_compile_features(heddle_flags INTERFACE cxx_std_20)
target_include_directories(heddle_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(heddle_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Woverloaded-virtual
  -Wnon-virtual-dtor -fno-omit-frame-pointer
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<BOOL:${HEDDLE_WERROR}>:-Werror>)
if(HEDDLE_SANITIZE)
  target_compile_options(heddle_flags INTERFACE -fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(heddle_flags INTERFACE -fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_FUZZ)
    target_compile_options(heddle_flags INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()

# Compiles a target with -O1. Code that waits for people, files or the network, or runs once a plan, needs no more, and
# compiles in three quarters of the time.
function(heddle_cold target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# Headers that most files include are compiled once for all of them, which saves a third of a small file's time. Each file
# still includes what it uses: the preset "tidy" and the lint of headers compile without precompiled headers.
set(HEDDLE_NOTHING "${CMAKE_CURRENT_LIST_DIR}/precompiled.cc")
# heddle_precompiled(NAME [COLD] header…): a target with these precompiled headers. COLD libraries use a COLD one, because a
# compiler accepts precompiled headers only at the same level of optimization.
function(heddle_precompiled name)
  cmake_parse_arguments(A "COLD" "" "" ${ARGN})
  add_library(${name} OBJECT "${HEDDLE_NOTHING}")
  if(A_COLD)
    heddle_cold(${name})
  endif()
  # Macros of the command line that the headers read must be those of the users, which all link base.
  target_link_libraries(${name} PRIVATE heddle_flags fmt::fmt spdlog::spdlog)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -fpch-preprocess)  # What ccache needs to see through them.
  endif()
  target_precompile_headers(${name} PRIVATE ${A_UNPARSED_ARGUMENTS})
endfunction()

function(heddle_use_precompiled target name)
  if(HEDDLE_PRECOMPILE)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# heddle_library(NAME [OBJECT] [COLD] [PRECOMPILED target] [DEPS name…] [EXTERNAL target…] [GENERATED file…]
#                [WITHOUT pattern…])
# NAME is the folder's path with '_' for '/': engine/graph is engine_graph. DEPS are names of the same
# kind, EXTERNAL are imported targets. An OBJECT library keeps every file in the link (registrations).
# WITHOUT: files of the folder, as regular expressions, that this build leaves out. COLD: heddle_cold.
# PRECOMPILED: the target of other precompiled headers than those that all libraries share, or NONE. A folder may set
# HEDDLE_COLD_HEADERS, the default of its COLD libraries.
function(heddle_library name)
  cmake_parse_arguments(A "OBJECT;COLD" "PRECOMPILED" "DEPS;EXTERNAL;GENERATED;WITHOUT" ${ARGN})
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "heddle_library(${name}): unknown arguments: ${A_UNPARSED_ARGUMENTS}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  foreach(pattern ${A_WITHOUT})
    list(FILTER sources EXCLUDE REGEX "/${pattern}$")
  endforeach()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  list(TRANSFORM A_DEPS PREPEND heddle_ OUTPUT_VARIABLE deps)
  if(sources OR A_GENERATED)
    if(A_OBJECT)
      add_library(heddle_${name} OBJECT ${sources} ${A_GENERATED})
    else()
      add_library(heddle_${name} STATIC ${sources} ${A_GENERATED})
    endif()
    target_link_libraries(heddle_${name} PUBLIC heddle_flags ${deps} ${A_EXTERNAL})
    if(A_COLD)
      heddle_cold(heddle_${name})
    endif()
    if(A_COLD AND NOT A_PRECOMPILED)
      set(A_PRECOMPILED ${HEDDLE_COLD_HEADERS})
    elseif(NOT A_PRECOMPILED)
      set(A_PRECOMPILED heddle_headers)
    endif()
    if(NOT A_PRECOMPILED STREQUAL "NONE")
      heddle_use_precompiled(heddle_${name} ${A_PRECOMPILED})
    endif()
  else()
    add_library(heddle_${name} INTERFACE)
    target_link_libraries(heddle_${name} INTERFACE heddle_flags ${deps} ${A_EXTERNAL})
  endif()
  list(JOIN A_DEPS "," joined)
  set_property(GLOBAL APPEND_STRING PROPERTY HEDDLE_LAYERS "${folder}=${name}:${joined}\n")
endfunction()

# heddle_transport(NAME [DEPS name…] [EXTERNAL target…] [WITHOUT pattern…]): the folder comm/transport/NAME as objects.
# Its declaration.cc is compiled with comm/cost, which knows each transport without linking it.
function(heddle_transport name)
  cmake_parse_arguments(A "" "" "DEPS;EXTERNAL;WITHOUT" ${ARGN})
  heddle_library(comm_transport_${name} OBJECT DEPS base comm_transport ${A_DEPS} EXTERNAL ${A_EXTERNAL}
    WITHOUT "declaration.cc" ${A_WITHOUT})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_TRANSPORTS ${name})
endfunction()

# heddle_umbrella(NAME DEPS name…): one name for all targets of a folder and its modules.
function(heddle_umbrella name)
  cmake_parse_arguments(A "" "" "DEPS" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  list(TRANSFORM A_DEPS PREPEND heddle_ OUTPUT_VARIABLE deps)
  add_library(heddle_${name} INTERFACE)
  target_link_libraries(heddle_${name} INTERFACE ${deps})
  list(JOIN A_DEPS "," joined)
  set_property(GLOBAL APPEND_STRING PROPERTY HEDDLE_LAYERS "umbrella ${folder}=${name}:${joined}\n")
endfunction()

# Compiler options and libraries of all tests. Tests run once and briefly, so they are compiled with less optimization than
# the code that they test.
function(heddle_test_options target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
  target_link_libraries(${target} PRIVATE heddle_flags GTest::gmock)
endfunction()

# heddle_test(FILE TIER quick|check|full|NO_ENTRY [REAL] [SCALED] [LABEL unit] [TIMEOUT seconds] [PROCESSORS 1] [DEPS name…]
#             [EXTERNAL target…] [ENVIRONMENT name=value…])
# FILE_test.cc in the current folder becomes one executable and one ctest entry LABEL.FOLDER.FILE (heddle_entry); NO_ENTRY
# instead of a tier: the executable alone. A folder sets HEDDLE_TEST_HEADERS, the headers that its tests precompile.
function(heddle_test file)
  cmake_parse_arguments(A "NO_ENTRY;REAL;SCALED" "TIER;LABEL;TIMEOUT;PROCESSORS" "DEPS;EXTERNAL;ENVIRONMENT" ${ARGN})
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "heddle_test(${file}): unknown arguments: ${A_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" prefix "${folder}")
  set(target test_${prefix}_${file})
  add_executable(${target} ${file}_test.cc)
  heddle_test_options(${target})
  target_precompile_headers(${target} REUSE_FROM ${HEDDLE_TEST_HEADERS})
  list(TRANSFORM A_DEPS PREPEND heddle_ OUTPUT_VARIABLE deps)
  target_link_libraries(${target} PRIVATE ${deps} ${A_EXTERNAL} heddle_test_main)
  if(A_NO_ENTRY)
    return()
  endif()
  set(flags "")
  foreach(flag REAL SCALED)
    if(A_${flag})
      list(APPEND flags ${flag})
    endif()
  endforeach()
  heddle_entry(${A_LABEL}.${prefix}.${file} TIER "${A_TIER}" LABEL ${A_LABEL} ${flags} TIMEOUT ${A_TIMEOUT}
    PROCESSORS ${A_PROCESSORS} ENVIRONMENT ${A_ENVIRONMENT} COMMAND $<TARGET_FILE:${target}>)
endfunction()

# heddle_fuzz(FILE [DEPS name…]): FILE_fuzz.cc with a corpus folder FILE_corpus beside it. Without
# HEDDLE_FUZZ an ordinary test of the tier quick replays the corpus and some thousand random changes of it.
function(heddle_fuzz file)
  cmake_parse_arguments(A "" "" "DEPS;EXTERNAL" ${ARGN})
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" prefix "${folder}")
  set(target fuzz_${prefix}_${file})
  add_executable(${target} ${file}_fuzz.cc)
  list(TRANSFORM A_DEPS PREPEND heddle_ OUTPUT_VARIABLE deps)
  target_link_libraries(${target} PRIVATE ${deps} ${A_EXTERNAL} heddle_flags)
  if(HEDDLE_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/replay_main.cc")
    target_link_libraries(${target} PRIVATE heddle_test_support)
    heddle_entry(fuzz.${prefix}.${file} TIER quick SCALED LABEL fuzz
      COMMAND $<TARGET_FILE:${target}> "${CMAKE_CURRENT_SOURCE_DIR}/${file}_corpus")
  endif()
endfunction()

function(heddle_write_layers)
  get_property(layers GLOBAL PROPERTY HEDDLE_LAYERS)
  file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/layers.txt" CONTENT "${layers}")
endfunction()
