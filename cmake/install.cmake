# Install rules, pkg-config and CMake package files: find_package(weft CONFIG), weft::weft. Nothing that is
# installed names the prefix, so that `cmake --install --prefix`, DESTDIR and a moved tree all work. The components are those of
# the packages; an install without a word of them has all.
include(CMakePackageConfigHelpers)

# weft_between(OUT FROM TO): the way from one folder of the prefix to another, as ../include. Folders that are
# given as absolute ones (-DCMAKE_INSTALL_LIBDIR=/..) are elsewhere by intent, and stay what they are.
function(weft_between out from to)
  if(IS_ABSOLUTE "${from}" OR IS_ABSOLUTE "${to}")
    get_filename_component(way "${to}" ABSOLUTE BASE_DIR "${CMAKE_INSTALL_PREFIX}")
  else()
    file(RELATIVE_PATH way "/prefix/${from}" "/prefix/${to}")
    string(REGEX REPLACE "/$" "" way "${way}")
  endif()
  set(${out} "${way}" PARENT_SCOPE)
endfunction()

# programs find the library beside them
weft_between(rpath ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR})
if(NOT IS_ABSOLUTE "${rpath}")
  set(rpath "$ORIGIN/${rpath}")
endif()
install(TARGETS weft-controller weft-worker weft-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
set_target_properties(weft-controller weft-worker weft-cli PROPERTIES INSTALL_RPATH "${rpath}")
install(TARGETS weft EXPORT weftTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(FILES worker/api/weft.h worker/api/weft_base.h worker/api/weft_play.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# schemas (and the scenarios, cmake/scenarios.cmake) and what helps beside an engine or a job
install(DIRECTORY routing/report/schema model/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/weft COMPONENT tools
  FILES_MATCHING PATTERN "*.schema.json")
install(PROGRAMS deploy/engine_params.py deploy/layout_file.py DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/deploy
  COMPONENT tools)
install(DIRECTORY deploy/models DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/deploy COMPONENT tools)

# documents lie to each other as in the source, so that their links lead somewhere
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)

# pkg-config knows the folder of the file that it reads, and escapes what is no word in it
weft_between(up ${CMAKE_INSTALL_LIBDIR}/pkgconfig .)
weft_between(WEFT_PC_LIBDIR . ${CMAKE_INSTALL_LIBDIR})
weft_between(WEFT_PC_INCLUDEDIR . ${CMAKE_INSTALL_INCLUDEDIR})
if(IS_ABSOLUTE "${up}")
  set(WEFT_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  set(WEFT_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  if(NOT IS_ABSOLUTE "${WEFT_PC_${folder}}")
    set(WEFT_PC_${folder} "\${prefix}/${WEFT_PC_${folder}}")
  endif()
endforeach()
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weft
  COMPONENT development)
configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/weftConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/weftConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weft COMPONENT development)
