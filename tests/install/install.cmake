# Installs a build tree into an empty folder.
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}"
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
foreach(file bin/trash-panda share/man/man1/trash-panda.1
    include/trash_panda/runtime/streamer.h)
  if(NOT EXISTS "${PREFIX}/${file}")
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
file(GLOB strays LIST_DIRECTORIES true RELATIVE "${PREFIX}" "${PREFIX}/*")
list(REMOVE_ITEM strays bin include lib lib64 share)
if(strays)
  message(FATAL_ERROR "installed into places of its own: ${strays}")
endif()
