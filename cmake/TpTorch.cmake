# LibTorch, as the Python package torch brings it. Not by find_package(Torch), which with a torch
# for CUDA asks for a CUDA toolkit, and which adds flags and run paths that nobody needs. Installed
# beside the libraries, for whoever links the bridge.
#
# TP_TORCH       AUTO (when a fitting torch is found), ON (an error without one), OFF
# TP_TORCH_ROOT  folder of the Python package torch, when it is not found by itself

set(TP_TORCH_VERSION_MIN 2.13)  # The first with c10::Stream::native_handle().

# tp_find_torch(OUT [HINT…]): makes trash_panda::libtorch and sets OUT to the version, or to nothing
# with TP_TORCH_MISSING saying why.
function(tp_find_torch out)
  set(${out} "" PARENT_SCOPE)
  set(header include/torch/headeronly/version.h)
  if(TP_TORCH_ROOT AND NOT EXISTS "${TP_TORCH_ROOT}/${header}")
    unset(TP_TORCH_ROOT CACHE)  # Its environment has gone, or has another Python now.
  endif()
  file(GLOB folders "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch"
    "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/torch")
  find_path(TP_TORCH_ROOT ${header} HINTS ${ARGN} ${folders} NO_DEFAULT_PATH
    DOC "Folder of the Python package torch")
  mark_as_advanced(TP_TORCH_ROOT)
  if(NOT TP_TORCH_ROOT)
    set(TP_TORCH_MISSING
      "no torch from ${TP_TORCH_VERSION_MIN} on was found (pip install torch; set TP_TORCH_ROOT)"
      PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${TP_TORCH_ROOT}/${header}" text
    REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]*([0-9]+)" "\\1" version "${text}")
  string(REPLACE ";" "." version "${version}")
  if(version VERSION_LESS TP_TORCH_VERSION_MIN)
    set(TP_TORCH_MISSING
      "torch ${version} in ${TP_TORCH_ROOT} is older than ${TP_TORCH_VERSION_MIN}" PARENT_SCOPE)
    return()
  endif()
  set(${out} "${version}" PARENT_SCOPE)
  if(TARGET trash_panda::libtorch)
    return()
  endif()
  foreach(library torch torch_cpu c10)
    add_library(trash_panda::lib${library}_file SHARED IMPORTED)
    set_target_properties(trash_panda::lib${library}_file PROPERTIES
      IMPORTED_LOCATION "${TP_TORCH_ROOT}/lib/lib${library}.so")
  endforeach()
  add_library(trash_panda::libtorch INTERFACE IMPORTED)
  # Behind all other folders, as torch brings headers of fmt, pybind11 and more along, which are not
  # those of the libraries that are linked here.
  set_target_properties(trash_panda::libtorch PROPERTIES
    INTERFACE_COMPILE_OPTIONS "SHELL:-idirafter \"${TP_TORCH_ROOT}/include\"")
  # libtorch.so holds nothing: it loads the libraries with the operators, those for CUDA too. They
  # find what they need themselves, so that the linker need not look for it.
  target_link_libraries(trash_panda::libtorch INTERFACE
    -Wl,--push-state,--no-as-needed,--allow-shlib-undefined trash_panda::libtorch_file
    -Wl,--pop-state trash_panda::libtorch_cpu_file trash_panda::libc10_file)
endfunction()

# tp_find_wanted_torch(): tp_find_torch() as TP_TORCH says, for this project's own build.
macro(tp_find_wanted_torch)
  if(NOT TP_TORCH MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TP_TORCH is \"${TP_TORCH}\"; it can be AUTO, ON or OFF")
  endif()
  if(TP_TORCH STREQUAL "OFF")
    message(STATUS "LibTorch bridge: off")
  else()
    tp_find_torch(TP_TORCH_VERSION)
    if(TP_TORCH_VERSION)
      message(STATUS "LibTorch bridge: torch ${TP_TORCH_VERSION} in ${TP_TORCH_ROOT}")
    elseif(TP_TORCH STREQUAL "ON")
      message(FATAL_ERROR "TP_TORCH is ON, but ${TP_TORCH_MISSING}")
    else()
      message(STATUS "LibTorch bridge: none, ${TP_TORCH_MISSING}")
    endif()
  endif()
endmacro()
