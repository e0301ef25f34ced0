# What every target of ours has in common: language level, warnings, sanitizers, hidden symbols.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# CMake's -O3 compiles half as long again as -O2, and little but loops over numbers gains by it:
# those ask for it, see tp_optimize_loops.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

# tp_optimize_loops(SOURCES…): sources of the current folder whose loops take the time of a run.
function(tp_optimize_loops)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
endfunction()

add_library(tp_options INTERFACE)
target_compile_options(tp_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string::insert and operator+ (GCC bug 105651, fixed in 13).
  target_compile_options(tp_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It warns of types of unnamed namespaces in headers, which joined sources look like, and of names
  # that are another source's own. Single ones are held to both: preset dev.
  target_compile_options(tp_options INTERFACE -Wno-subobject-linkage -Wno-shadow)
endif()
if(TP_WARNINGS_AS_ERRORS)
  target_compile_options(tp_options INTERFACE -Werror)
endif()
# Products and sums stay separate roundings everywhere: expansion is bit-equal to the reference
# arithmetic, which a fused multiply-add would not be.
target_compile_options(tp_options INTERFACE -ffp-contract=off)
if(TP_SANITIZE)
  target_compile_options(tp_options INTERFACE -fsanitize=${TP_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tp_options INTERFACE -fsanitize=${TP_SANITIZE})
endif()

# tp_add_library(NAME SOURCES…): the static library tp_NAME of folder libNAME, alias
# trash_panda::NAME. Public headers are in include/, private ones beside the sources.
function(tp_add_library name)
  add_library(tp_${name} STATIC ${ARGN})
  add_library(trash_panda::${name} ALIAS tp_${name})
  target_include_directories(tp_${name}
    PUBLIC "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
    PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(tp_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(tp_${name} PUBLIC cxx_std_23)
  target_link_libraries(tp_${name} PRIVATE "$<BUILD_INTERFACE:tp_options>")
endfunction()
