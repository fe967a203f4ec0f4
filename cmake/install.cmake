# `cmake --install`: the program and what it loads (component runtime), the C++ library for programs
# outside (component library). docs/install.md shows the result; tests/install proves it.
include(CMakePackageConfigHelpers)
set(share ${CMAKE_INSTALL_DATADIR}/feroce)
set(config ${CMAKE_INSTALL_LIBDIR}/cmake/Feroce)
set(package ${CMAKE_SOURCE_DIR}/cmake/package)

install(TARGETS feroce RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
# Only by their run-time names: nobody links with them by mistake.
install(TARGETS ibverbs rdmacm feroce_shim nbdkit_feroce
        LIBRARY DESTINATION ${FEROCE_PRIVATE} COMPONENT runtime NAMELINK_SKIP)
if(TARGET feroce_python_shared)
  install(TARGETS feroce_python_shared LIBRARY DESTINATION ${FEROCE_PRIVATE} COMPONENT runtime)
  install(DIRECTORY src/python/feroce DESTINATION ${share}/python COMPONENT runtime
          FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN __pycache__ EXCLUDE)
endif()
foreach(section 1 7)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.${section})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT runtime)
endforeach()
install(FILES ${package}/feroce.bash RENAME feroce COMPONENT runtime
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${package}/_feroce COMPONENT runtime
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${package}/feroce.fish COMPONENT runtime
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
file(GLOB dissectors CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/wireshark/*.lua)
install(FILES ${dissectors} DESTINATION ${share}/wireshark COMPONENT runtime)
install(FILES tools/grafana/feroce.json DESTINATION ${share}/grafana COMPONENT runtime)
install(FILES tools/bpftrace/cm_events.bt DESTINATION ${share}/bpftrace COMPONENT runtime)
install(FILES docs/systemd/feroce-export.service DESTINATION ${share}/systemd COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

install(TARGETS libferoce ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(TARGETS libferoce_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
# Also where `feroce run` looks, for programs that were linked with it: LD_LIBRARY_PATH names no
# folder that others share.
file(RELATIVE_PATH target /prefix/${FEROCE_PRIVATE} /prefix/${CMAKE_INSTALL_LIBDIR}/libferoce.so.1)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/links)
file(CREATE_LINK ${target} ${CMAKE_BINARY_DIR}/links/libferoce.so.1 SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/links/libferoce.so.1 DESTINATION ${FEROCE_PRIVATE}
        COMPONENT library)
install(DIRECTORY include/feroce DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT library
        FILES_MATCHING PATTERN "*.cpp" PATTERN "python/*.py" PATTERN __pycache__ EXCLUDE)

configure_package_config_file(${package}/FeroceConfig.cmake.in FeroceConfig.cmake
                              INSTALL_DESTINATION ${config}
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR
                                        FEROCE_PRIVATE)
write_basic_package_version_file(FeroceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/FeroceConfig.cmake ${CMAKE_BINARY_DIR}/FeroceConfigVersion.cmake
        DESTINATION ${config} COMPONENT library)

# pkg-config finds the prefix from where the file lies, so an installed tree may be moved.
file(RELATIVE_PATH FEROCE_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
foreach(name feroce feroce-verbs)
  configure_file(${package}/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT library)
endforeach()

add_custom_target(uninstall COMMENT "Removing what the last install put in place"
                  COMMAND ${CMAKE_COMMAND} -P ${package}/uninstall.cmake VERBATIM)
