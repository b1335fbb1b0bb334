# Tests that run in the guests of scripts/rdma-vm, label rdma. docs/internals/rdma-tests.md

# heddle_rdma_entry(NAME TIER check|full KERNEL any|uml|qemu [SCALED] TIMEOUT seconds PROCESSORS n COMMAND word…): adds an entry
# that runs in guests. It needs the fixture that makes the kernel (tests/rdma). Where no kernel can run it is skipped, and
# scripts/test says so.
function(heddle_rdma_entry name)
  cmake_parse_arguments(A "" "KERNEL" "" ${ARGN})
  heddle_entry(${name} LABEL rdma ${A_UNPARSED_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 69 FIXTURES_REQUIRED rdma_${A_KERNEL})
endfunction()

# heddle_rdma_test(NAME (TARGET target | COMMAND word…) [TIER full] [SCALED] [ARGUMENTS word…] [GUESTS 1] [DEVICE rxe]
#                  [KERNEL uml|qemu] [TIMEOUT 120] [PROCESSORS 2] [OPTIONS word…] [ENVIRONMENT name=value…])
# The ctest entry rdma.FOLDER.NAME runs the program of the target (or the command) in each of GUESTS guests: HEDDLE_GUEST is
# the guest's number, 10.9.0.(number + 1) its address. OPTIONS go to scripts/rdma-vm. It passes when every guest's program
# returns 0. Without KERNEL it runs under uml, or under qemu where uml does not start. A sanitizer's build runs all entries under
# qemu and leaves out those that need siw.
function(heddle_rdma_test name)
  cmake_parse_arguments(A "SCALED" "TIER;TARGET;GUESTS;DEVICE;KERNEL;TIMEOUT;PROCESSORS"
    "COMMAND;ARGUMENTS;OPTIONS;ENVIRONMENT" ${ARGN})
  if(A_UNPARSED_ARGUMENTS OR NOT (A_TARGET OR A_COMMAND))
    message(FATAL_ERROR "heddle_rdma_test(${name}): unknown arguments or no program: ${A_UNPARSED_ARGUMENTS}")
  endif()
  foreach(pair "TIER;full" "GUESTS;1" "DEVICE;rxe" "KERNEL;any" "TIMEOUT;120" "PROCESSORS;2")
    list(GET pair 0 key)
    list(GET pair 1 value)
    if(NOT A_${key})
      set(A_${key} ${value})
    endif()
  endforeach()
  if(HEDDLE_SANITIZE)
    if(A_DEVICE STREQUAL siw)
      return()
    endif()
    set(A_KERNEL qemu)
  endif()
  set(kernel "")
  if(NOT A_KERNEL STREQUAL any)
    set(kernel --kernel ${A_KERNEL})
  endif()
  if(A_TARGET)
    set(A_COMMAND $<TARGET_FILE:${A_TARGET}>)
  endif()
  # The script's own limit is the shorter one, because the script says which guest was late and shows its console.
  math(EXPR limit "${A_TIMEOUT} - 5")
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" prefix "${folder}")
  set(scaled "")
  if(A_SCALED)
    set(scaled SCALED)
  endif()
  heddle_rdma_entry(rdma.${prefix}.${name} TIER ${A_TIER} ${scaled} KERNEL ${A_KERNEL} TIMEOUT ${A_TIMEOUT}
    PROCESSORS ${A_PROCESSORS} ENVIRONMENT ${A_ENVIRONMENT}
    COMMAND "${PROJECT_SOURCE_DIR}/scripts/rdma-vm" --guests ${A_GUESTS} --device ${A_DEVICE} ${kernel}
      --time-limit ${limit} --see "${CMAKE_BINARY_DIR}" ${A_OPTIONS} -- ${A_COMMAND} ${A_ARGUMENTS})
endfunction()
