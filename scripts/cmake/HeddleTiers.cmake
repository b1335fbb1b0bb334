# Test entries and their tiers. `quick` is a part of `check`, and `check` of `full`. An entry has the ctest label tier.T of the
# first tier that runs it; the later ones run it too. docs/internals/testing.md

# The one place of the budgets, in seconds, on any machine of two cores that is at least half as fast as the one on which
# docs/measured's figures were measured. An entry may measure a third of its tier's ENTRY budget there, all entries of a
# tier together half of its TOTAL budget. In `full` an entry has a TIMEOUT of its own below the budget.
set(HEDDLE_TIERS quick check full)
set(HEDDLE_TIER_ENTRY_SECONDS 15 90 600)
set(HEDDLE_TIER_TOTAL_SECONDS 90 480 3600)
# What a sanitizer may cost.
set(HEDDLE_TIER_SANITIZER_FACTOR 4)

# heddle_entry(NAME TIER quick|check|full LABEL label [SCALED] [TIMEOUT 60] [PROCESSORS 1] [ENVIRONMENT name=value…]
#              COMMAND word…)
# Every ctest entry of the project. SCALED: it takes its sizes from tests/support/tier.h or tiers.py, so that `full` runs it
# again after `check`. PROCESSORS: how many it computes on; one that mostly waits has 1. Programs are $<TARGET_FILE:…>.
function(heddle_entry name)
  cmake_parse_arguments(A "SCALED" "TIER;LABEL;TIMEOUT;PROCESSORS" "ENVIRONMENT;COMMAND" ${ARGN})
  list(FIND HEDDLE_TIERS "${A_TIER}" tier)
  if(tier EQUAL -1)
    message(FATAL_ERROR "${name}: the tier is '${A_TIER}': expected quick, check or full")
  endif()
  if(A_UNPARSED_ARGUMENTS OR NOT A_COMMAND OR NOT A_LABEL)
    message(FATAL_ERROR "${name}: no command, no label, or unknown arguments: ${A_UNPARSED_ARGUMENTS}")
  endif()
  foreach(pair "TIMEOUT;60" "PROCESSORS;1")
    list(GET pair 0 key)
    list(GET pair 1 value)
    if(NOT A_${key})
      set(A_${key} ${value})
    endif()
  endforeach()
  list(GET HEDDLE_TIER_ENTRY_SECONDS 2 most)
  if(A_TIMEOUT GREATER most)
    message(FATAL_ERROR "${name}: TIMEOUT ${A_TIMEOUT} is above the ${most} s that an entry of the tier full may take")
  endif()
  set(labels ${A_LABEL} tier.${A_TIER})
  set(scaled 0)
  if(A_SCALED)
    set(scaled 1)
    list(APPEND labels scaled)
  endif()
  add_test(NAME ${name} COMMAND ${A_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${A_TIMEOUT} PROCESSORS ${A_PROCESSORS}
    ENVIRONMENT "HEDDLE_TEST_SCALED=${scaled};${A_ENVIRONMENT}")
  string(REGEX MATCHALL "\\$<TARGET_FILE:[^>]+>" programs "${A_COMMAND}")
  list(REMOVE_DUPLICATES programs)
  list(JOIN programs "\", \"" programs)
  if(programs)
    set(programs "\"${programs}\"")
  endif()
  set_property(GLOBAL APPEND PROPERTY HEDDLE_ENTRIES
    "{\"name\": \"${name}\", \"tier\": \"${A_TIER}\", \"scaled\": ${scaled}, \"programs\": [${programs}]}")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_TIMEOUTS "${name}=${tier}=${A_TIMEOUT}")
endfunction()

# Names of all ctest entries in a folder and below.
function(heddle_collect_entries folder result)
  get_property(found DIRECTORY "${folder}" PROPERTY TESTS)
  get_property(children DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(child ${children})
    heddle_collect_entries("${child}" more)
    list(APPEND found ${more})
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# heddle_finish_entries(LAST): call it at the end of the project. Refuses entries without a tier; writes tests.json, what
# scripts/test and .ci/deep know of the entries; and lets ctest, told the tier by HEDDLE_TEST_TIER, hold each entry to the
# tier's budget. LAST is the folder that was added last: ctest reads its file when it knows all entries.
function(heddle_finish_entries last)
  get_property(entries GLOBAL PROPERTY HEDDLE_ENTRIES)
  get_property(timeouts GLOBAL PROPERTY HEDDLE_TIMEOUTS)
  heddle_collect_entries("${CMAKE_SOURCE_DIR}" names)
  foreach(name ${names})
    if(NOT ";${timeouts}" MATCHES ";${name}=")
      message(FATAL_ERROR "the test entry ${name} has no tier: register it by heddle_entry (scripts/cmake/HeddleTiers.cmake)")
    endif()
  endforeach()
  set(factor 1)
  if(HEDDLE_SANITIZE)
    set(factor ${HEDDLE_TIER_SANITIZER_FACTOR})
  endif()
  set(indices 0 1 2)
  set(limits "# Written by scripts/cmake/HeddleTiers.cmake.\n")
  # A fixture of a later tier keeps its own limit.
  foreach(tier index seconds IN ZIP_LISTS HEDDLE_TIERS indices HEDDLE_TIER_ENTRY_SECONDS)
    math(EXPR budget "${seconds} * ${factor}")
    set(longer "")
    foreach(entry ${timeouts})
      string(REGEX MATCH "^(.+)=([0-9])=([0-9]+)$" whole "${entry}")
      if(NOT CMAKE_MATCH_2 GREATER index AND CMAKE_MATCH_3 GREATER budget)
        list(APPEND longer ${CMAKE_MATCH_1})
      endif()
    endforeach()
    if(longer)
      list(JOIN longer "\n    " longer)
      string(APPEND limits "if(\"\$ENV{HEDDLE_TEST_TIER}\" STREQUAL ${tier})\n"
        "  set_tests_properties(\n    ${longer}\n    PROPERTIES TIMEOUT ${budget})\nendif()\n")
    endif()
  endforeach()
  file(WRITE "${CMAKE_BINARY_DIR}/tier_limits.cmake" "${limits}")
  set_property(DIRECTORY "${last}" APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_BINARY_DIR}/tier_limits.cmake")
  list(JOIN entries ",\n  " entries)
  set(totals "")
  foreach(tier seconds IN ZIP_LISTS HEDDLE_TIERS HEDDLE_TIER_TOTAL_SECONDS)
    list(APPEND totals "\"${tier}\": ${seconds}")
  endforeach()
  list(JOIN totals ", " totals)
  file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/tests.json"
    CONTENT "{\"total_seconds\": {${totals}},\n \"entries\": [\n  ${entries}]}\n")
endfunction()
