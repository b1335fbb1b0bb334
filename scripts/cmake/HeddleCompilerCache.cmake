# Compiles through ccache if it is installed when a build folder is first configured. The folder keeps that choice, because a
# change of every command line would rebuild everything. -DHEDDLE_CCACHE=OFF, or another CMAKE_CXX_COMPILER_LAUNCHER, turns it
# off.
#
# Paths below the source folder are hashed relative to it, so that clones and presets share cached objects. Precompiled headers
# need the sloppiness that ccache's manual names for them. The includes of a file are taken from the compiler's own list
# (CCACHE_DEPEND): preprocessing each file once more would take 5 to 10 % of a build without a warm cache.
if(NOT DEFINED HEDDLE_CCACHE)
  find_program(found NAMES ccache NO_CACHE)
  if(NOT found)
    set(found OFF)
  endif()
  set(HEDDLE_CCACHE "${found}" CACHE STRING "The program ccache, decided when this folder was first configured; OFF: none")
endif()
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${HEDDLE_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
  unset(launcher)
endif()
unset(found)
message(STATUS "Compiler cache: ${HEDDLE_CCACHE}")
