# `cmake --install build --prefix DIR`: DIR/bin/fem with its recipes, and find_package(fem) with CMAKE_PREFIX_PATH=DIR.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/fem)
install(TARGETS fem EXPORT femTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS fem_sentencepiece LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/fem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT femTargets NAMESPACE fem:: DESTINATION ${package})
configure_package_config_file(cmake/femConfig.cmake.in ${CMAKE_BINARY_DIR}/femConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/femConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/femConfig.cmake ${CMAKE_BINARY_DIR}/femConfigVersion.cmake DESTINATION ${package})

# fem_install_shared_files(destination option...): what the command reads; options are those of install(DIRECTORY).
function(fem_install_shared_files destination)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs DESTINATION ${destination} ${ARGN})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/scripts DESTINATION ${destination} ${ARGN}
    FILES_MATCHING PATTERN "plot_*.py" PATTERN "report*.py" PATTERN "report.css" PATTERN "html_page.*" PATTERN "inspect*"
    PATTERN "palette.py" PATTERN "jsonl.py")
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/experiments DESTINATION ${destination} ${ARGN}
    FILES_MATCHING PATTERN "claim.toml")
endfunction()

# fem_install_library(file destination option...): a shared library under the name that programs ask for.
function(fem_install_library file destination)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${file} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  if(NOT headers MATCHES "SONAME +([^ \n]+)")
    message(FATAL_ERROR "${file} has no SONAME: it cannot be carried along")
  endif()
  file(REAL_PATH ${file} real)
  install(PROGRAMS ${real} DESTINATION ${destination} RENAME ${CMAKE_MATCH_1} ${ARGN})
endfunction()
