# What a C++ user gets by `cmake --install`: the libraries, their headers, and the package for
# find_package(trash_panda). The bridge to LibTorch is a component of its own, as torch is only
# looked for where it is wanted.
include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/trash_panda")

# tp_install_libraries(EXPORT NAME=FOLDER…)
function(tp_install_libraries export)
  foreach(entry IN LISTS ARGN)
    string(REPLACE "=" ";" parts "${entry}")
    list(GET parts 0 name)
    list(GET parts 1 folder)
    install(TARGETS tp_${name} EXPORT ${export}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cpp)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}/include/"
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT cpp)
  endforeach()
  install(EXPORT ${export} NAMESPACE trash_panda:: DESTINATION "${package_folder}" COMPONENT cpp)
endfunction()

tp_install_libraries(trash_panda-targets
  base=libbase format=libformat plan=libplan runtime=libruntime)
if(TARGET tp_torch)
  tp_install_libraries(trash_panda-torch-targets torch=libtorch_bridge)
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/trash_panda-config.cmake.in"
  "${PROJECT_BINARY_DIR}/trash_panda-config.cmake" INSTALL_DESTINATION "${package_folder}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/trash_panda-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/trash_panda-config.cmake"
    "${PROJECT_BINARY_DIR}/trash_panda-config-version.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/TpDependencies.cmake" "${CMAKE_CURRENT_LIST_DIR}/TpTorch.cmake"
  DESTINATION "${package_folder}" COMPONENT cpp)
