# The CUDA kernels: nvcc makes one fat binary, which is embedded as data. CMake's CUDA language is
# not used, as it would link the CUDA runtime library: the driver is loaded at run time instead.
#
# TP_CUDA       AUTO (when a fitting nvcc is found), ON (an error without one), OFF
# TP_NVCC       path of nvcc, when it is not found by itself

set(TP_CUDA_NVCC_MIN 12.8)  # The first that knows sm_100 and sm_120.
set(TP_CUDA_ARCHITECTURES 75 80 86 89 90 100 120 CACHE STRING
  "GPU architectures that kernels are compiled for; newer ones use the PTX of the first")
mark_as_advanced(TP_CUDA_ARCHITECTURES)

# tp_find_nvcc(OUT): path of a fitting nvcc, or empty with TP_CUDA_MISSING saying why.
function(tp_find_nvcc out)
  set(${out} "" PARENT_SCOPE)
  # A CUDA toolkit installed by pip lies in a virtual environment: the repository's, or the active.
  file(GLOB pip_folders
    "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/bin"
    "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu13/bin")
  find_program(TP_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin ${pip_folders}
    DOC "nvcc, the CUDA compiler")
  mark_as_advanced(TP_NVCC)
  if(NOT TP_NVCC)
    set(TP_CUDA_MISSING "nvcc not found (install a CUDA toolkit, or set TP_NVCC)" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${TP_NVCC}" --version OUTPUT_VARIABLE text ERROR_VARIABLE text
    RESULT_VARIABLE status)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${text}")
  if(NOT status EQUAL 0 OR NOT CMAKE_MATCH_1)
    set(TP_CUDA_MISSING "${TP_NVCC} does not run" PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 VERSION_LESS TP_CUDA_NVCC_MIN)
    set(TP_CUDA_MISSING "${TP_NVCC} is ${CMAKE_MATCH_1}, older than ${TP_CUDA_NVCC_MIN}"
      PARENT_SCOPE)
  else()
    set(${out} "${TP_NVCC}" PARENT_SCOPE)
  endif()
endfunction()

# tp_embed_cuda_kernels(TARGET SOURCE IMAGE): compiles SOURCE (.cu) into a fat binary and adds
# IMAGE (.S), which takes it in, to TARGET, with TP_HAS_CUDA_KERNELS defined.
function(tp_embed_cuda_kernels target source image)
  if(NOT TP_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TP_CUDA is \"${TP_CUDA}\"; it can be AUTO, ON or OFF")
  endif()
  if(TP_CUDA STREQUAL "OFF")
    message(STATUS "CUDA kernels: off")
    return()
  endif()
  tp_find_nvcc(nvcc)
  if(NOT nvcc)
    if(TP_CUDA STREQUAL "ON")
      message(FATAL_ERROR "TP_CUDA is ON, but ${TP_CUDA_MISSING}")
    endif()
    message(STATUS "CUDA kernels: none, ${TP_CUDA_MISSING}")
    return()
  endif()
  message(STATUS "CUDA kernels: ${nvcc}")

  set(codes)
  foreach(architecture IN LISTS TP_CUDA_ARCHITECTURES)
    list(APPEND codes "-gencode=arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  list(GET TP_CUDA_ARCHITECTURES 0 oldest)
  list(APPEND codes "-gencode=arch=compute_${oldest},code=compute_${oldest}")
  get_filename_component(name "${source}" NAME_WE)
  set(fat_binary "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
  # --fmad=false: a product and a sum stay two roundings, as on the host.
  add_custom_command(OUTPUT "${fat_binary}"
    COMMAND "${nvcc}" -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr
      -ccbin "${CMAKE_CXX_COMPILER}" "-I${CMAKE_CURRENT_SOURCE_DIR}" -fatbin ${codes}
      -MD -MF "${fat_binary}.d" -MT "${fat_binary}"
      -o "${fat_binary}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPENDS "${source}" DEPFILE "${fat_binary}.d"
    COMMENT "Compiling CUDA kernels ${source}" VERBATIM)
  # Without OBJECT_DEPENDS a new fat binary would not be taken in.
  set_source_files_properties("${image}" PROPERTIES OBJECT_DEPENDS "${fat_binary}"
    COMPILE_DEFINITIONS "TP_KERNEL_IMAGE=\"${fat_binary}\"")
  target_sources(${target} PRIVATE "${image}")
  target_compile_definitions(${target} PRIVATE TP_HAS_CUDA_KERNELS)
endfunction()

# tp_check_cuda_declarations(TARGET SOURCE): compiles SOURCE, which compares our declarations with
# cuda.h, when nvcc's toolkit has that header.
function(tp_check_cuda_declarations target source)
  if(NOT TP_NVCC)
    return()
  endif()
  file(REAL_PATH "${TP_NVCC}" real_nvcc)
  get_filename_component(bin "${real_nvcc}" DIRECTORY)
  find_path(TP_CUDA_INCLUDE cuda.h
    HINTS "${bin}/../include" "${bin}/../targets/x86_64-linux/include"
    PATHS /usr/local/cuda/include
    DOC "Folder of cuda.h")
  mark_as_advanced(TP_CUDA_INCLUDE)
  if(TP_CUDA_INCLUDE)
    add_library(${target}_cuda_check OBJECT "${source}")
    target_include_directories(${target}_cuda_check PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_include_directories(${target}_cuda_check SYSTEM PRIVATE "${TP_CUDA_INCLUDE}")
    target_link_libraries(${target}_cuda_check PRIVATE tp_options tp_base)
  endif()
endfunction()
