// All tests share the precompiled headers of the library that is this file: tests/CMakeLists.txt.
