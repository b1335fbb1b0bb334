# Compiles through ccache where it is installed when a build folder is first configured. The answer is kept in the folder: a
# ccache that is installed later would change every command line, and so build everything again. -DHEDDLE_CCACHE=OFF, or a
# launcher of the caller's own (CMAKE_CXX_COMPILER_LAUNCHER), leaves it out.
#
# Clones and presets share what they can: paths below the source folder are hashed relative to it. The precompiled headers
# need the sloppiness that ccache's manual names for them. What a file includes is taken from the compiler's own list
# (CCACHE_DEPEND): preprocessing each file once more would take a twentieth to a tenth of a build without a warm cache.
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
