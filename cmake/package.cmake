# Debian packages by CPack, in the tree that deploy/package/debian configures for them: its prefix is /usr and its folder of
# libraries the architecture's. What packages alone have (copyright, changelogs) is no part of an ordinary install.
set(WEFT_MAINTAINER "Weft maintainers <maintainers@weft.invalid>" CACHE STRING "who answers for packages, as Name <address>")
set(library_package libweft${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(WEFT_DEBIAN_RELEASE 1 CACHE STRING "which packaging of this version it is")
set(debian_version ${PROJECT_VERSION}-${WEFT_DEBIAN_RELEASE})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${WEFT_MAINTAINER})
set(CPACK_COMPONENTS_ALL library development tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/deploy/package/strip.cmake)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each has its own, the first line of its description
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${WEFT_DEBIAN_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SOURCE weft)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_CURRENT_BINARY_DIR}) # of programs, which need our own library

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
# Written here, since dpkg has triggers: CPack would have scripts that call ldconfig. Naming those as ours, where none are, is how
# it is told to write none.
file(CONFIGURE OUTPUT package/triggers CONTENT "activate-noawait ldconfig\n")
file(CONFIGURE OUTPUT package/shlibs CONTENT
  "libweft ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${library_package} (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/package/triggers
  ${CMAKE_CURRENT_BINARY_DIR}/package/shlibs ${CMAKE_CURRENT_BINARY_DIR}/package/none/postinst
  ${CMAKE_CURRENT_BINARY_DIR}/package/none/postrm)
# what the library opens where it is wanted (docs/install.md); without it a transport is one that cannot be used
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libibverbs1, ibverbs-providers, librdmacm1, libfabric1")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "libmicrohttpd12")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "moves trained weights into inference memory (library)
Weft moves freshly trained weights from trainer processes into inference
engines during reinforcement learning: one-sided writes, planned once by a
central controller, proved before a byte moves, verified after.
.
This is the library that trainers and engines are linked to.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libweft-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} (= ${debian_version})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS weft)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "moves trained weights into inference memory (headers)
Weft moves freshly trained weights from trainer processes into inference
engines during reinforcement learning: one-sided writes, planned once by a
central controller, proved before a byte moves, verified after.
.
These are the headers, and what pkg-config and CMake want to know. Examples
are in the package weft.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME weft)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${library_package} (= ${debian_version})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS python3)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "moves trained weights into inference memory (programs)
Weft moves freshly trained weights from trainer processes into inference
engines during reinforcement learning: one-sided writes, planned once by a
central controller, proved before a byte moves, verified after.
.
These are the controller of a job, a worker that plays a trainer or an
engine, and the tool that plans, explains, compares and simulates routing,
looks a machine over and measures; with manual pages, completion for bash and
zsh, schemas, documents and examples.")

# of each package: its copyright, Debian's changelog and ours
set(WEFT_COPYRIGHT_CUDA "")
if(WEFT_CUDA_FOUND)
  set(WEFT_COPYRIGHT_CUDA "Comment:
 The binaries contain the runtime of NVIDIA's CUDA toolkit, linked
 statically: Copyright (c) NVIDIA Corporation, under the End User License
 Agreement of that toolkit, which names it among the parts of it that may be
 distributed within programs.
")
endif()
configure_file(deploy/package/copyright.in package/copyright @ONLY)
file(CONFIGURE OUTPUT package/facts.json CONTENT
  "{\"version\": \"${PROJECT_VERSION}\", \"description\": \"${PROJECT_DESCRIPTION}\", \"cuda\": \"${WEFT_CUDA_VERSION}\"}\n")
foreach(component library development tools)
  string(TOUPPER ${component} upper)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/copyright ${CMAKE_CURRENT_BINARY_DIR}/package/changelog.gz
    ${CMAKE_CURRENT_BINARY_DIR}/package/changelog.Debian.gz
    DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL)
  set(overrides ${CMAKE_CURRENT_SOURCE_DIR}/deploy/package/overrides/${component})
  if(EXISTS ${overrides})
    file(READ ${overrides} text)
    if(NOT WEFT_CUDA_FOUND) # lintian minds an override of what is not there
      string(REGEX REPLACE "# [^\n]*CUDA[^\n]*\n[^\n]*\n" "" text "${text}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${overrides})
    file(CONFIGURE OUTPUT package/overrides/${component} CONTENT "${text}" @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/overrides/${component} RENAME ${CPACK_DEBIAN_${upper}_PACKAGE_NAME}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()
include(CPack)
