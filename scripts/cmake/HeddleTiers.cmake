# Test entries and their tiers. `quick` is a part of `check`, and `check` of `full`. An entry has the ctest label tier.T of the
# first tier that runs it; the later tiers run it too. More: docs/internals/testing.md

set(HEDDLE_TIERS quick check full)
# The seed of every randomised test, unless HEDDLE_TEST_SEED names another one: the same commit has the same verdict.
set(HEDDLE_TEST_SEED 20261126)
# Seconds that each tier should take on two cores. They are printed beside the seconds that it took; no run fails by them.
set(HEDDLE_TIER_SECONDS 60 480 3600)
# The factor on every time limit under a sanitizer.
set(HEDDLE_TIER_SANITIZER_FACTOR 4)
# Entries with these labels start processes or talk over sockets, so they are REAL.
set(HEDDLE_REAL_LABELS conformance integration rdma)

# heddle_entry(NAME TIER quick|check|full LABEL label [REAL] [SCALED] [TIMEOUT seconds] [PROCESSORS 1] [ENVIRONMENT name=value…]
#              COMMAND word…)
# Adds a ctest entry; every entry of the project is made by it. REAL: the entry starts processes or talks over sockets, and
# scripts/run_tests.py runs it once more if it fails. One REAL entry of the label conformance and one of the others run at a time,
# beside pure ones. SCALED: it takes its sizes from tests/support/tier.h or tiers.py, so that `full` runs it again after `check`.
# TIMEOUT: a limit that catches hangs, at least five times what the entry takes on an idle machine; default 120, or 300 for REAL.
# PROCESSORS: how many it computes on; 1 for one that mostly waits.
function(heddle_entry name)
  cmake_parse_arguments(A "REAL;SCALED" "TIER;LABEL;TIMEOUT;PROCESSORS" "ENVIRONMENT;COMMAND" ${ARGN})
  if(NOT A_TIER IN_LIST HEDDLE_TIERS)
    message(FATAL_ERROR "${name}: the tier is '${A_TIER}': expected quick, check or full")
  endif()
  if(A_UNPARSED_ARGUMENTS OR NOT A_COMMAND OR NOT A_LABEL)
    message(FATAL_ERROR "${name}: no command, no label, or unknown arguments: ${A_UNPARSED_ARGUMENTS}")
  endif()
  set(real false)
  set(limit 120)
  if(A_REAL OR A_LABEL IN_LIST HEDDLE_REAL_LABELS)
    set(real true)
    set(limit 300)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT ${limit})
  endif()
  if(NOT A_PROCESSORS)
    set(A_PROCESSORS 1)
  endif()
  set(sanitized 0)
  if(HEDDLE_SANITIZE)
    set(sanitized 1)
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * ${HEDDLE_TIER_SANITIZER_FACTOR}")
  endif()
  set(labels ${A_LABEL} tier.${A_TIER})
  set(scaled 0)
  if(A_SCALED)
    set(scaled 1)
    list(APPEND labels scaled)
  endif()
  add_test(NAME ${name} COMMAND ${A_COMMAND})
  # Those that wait for each other begin first: at the end nothing would run beside them.
  if(A_LABEL STREQUAL conformance)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK sockets COST 1000)
  elseif(real)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK processes COST 2000)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${A_TIMEOUT} PROCESSORS ${A_PROCESSORS}
    ENVIRONMENT "HEDDLE_TEST_DEFAULT_SEED=${HEDDLE_TEST_SEED};HEDDLE_TEST_SCALED=${scaled};HEDDLE_TEST_SANITIZED=${sanitized};${A_ENVIRONMENT}")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_ENTRIES
    "{\"name\": \"${name}\", \"tier\": \"${A_TIER}\", \"real\": ${real}, \"timeout\": ${A_TIMEOUT}}")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_ENTRY_NAMES ${name})
endfunction()

# Sets RESULT to the names of all ctest entries in a folder and below.
function(heddle_collect_entries folder result)
  get_property(found DIRECTORY "${folder}" PROPERTY TESTS)
  get_property(children DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(child ${children})
    heddle_collect_entries("${child}" more)
    list(APPEND found ${more})
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# heddle_finish_entries(): called at the end of the project. Refuses entries without a tier and writes tests.json, the list of
# entries for scripts/run_tests.py and scripts/checks/docs.py. Its key "whole" is true if no part of the project is left out,
# so that a name which is not in the list does not exist.
function(heddle_finish_entries)
  get_property(entries GLOBAL PROPERTY HEDDLE_ENTRIES)
  get_property(registered GLOBAL PROPERTY HEDDLE_ENTRY_NAMES)
  heddle_collect_entries("${CMAKE_SOURCE_DIR}" names)
  foreach(name ${names})
    if(NOT name IN_LIST registered)
      message(FATAL_ERROR "the test entry ${name} has no tier: register it by heddle_entry (scripts/cmake/HeddleTiers.cmake)")
    endif()
  endforeach()
  list(JOIN entries ",\n  " entries)
  set(totals "")
  foreach(tier seconds IN ZIP_LISTS HEDDLE_TIERS HEDDLE_TIER_SECONDS)
    list(APPEND totals "\"${tier}\": ${seconds}")
  endforeach()
  list(JOIN totals ", " totals)
  set(whole false)
  if(TARGET heddle AND HEDDLE_WITH_VERBS AND HEDDLE_WITH_MPI AND MPIEXEC_EXECUTABLE AND NOT HEDDLE_SANITIZE
     AND TARGET heddle_on_fake_cards)
    set(whole true)
  endif()
  file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/tests.json"
    CONTENT "{\"whole\": ${whole},\n \"tier_seconds\": {${totals}},\n \"entries\": [\n  ${entries}]}\n")
endfunction()
