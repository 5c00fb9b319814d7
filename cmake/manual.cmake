# Manual pages and completion, made of what the programs that were just built say to --help. They are left out where those cannot
# be run here, or are no ones to be installed, and where there is no Python: what is built is the same without.
option(WEFT_MANUAL "make manual pages and completion (needs Python 3)" ON)
set(WEFT_ZSH_FOLDER ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "where zsh looks for completion")
find_package(Python3 3.8 COMPONENTS Interpreter)
if(NOT WEFT_MANUAL OR CMAKE_CROSSCOMPILING OR WEFT_FUZZ OR NOT WEFT_SANITIZE STREQUAL "")
  return()
endif()
if(NOT Python3_FOUND)
  message(STATUS "no Python 3: no manual pages and no completion")
  return()
endif()

set(makers ${CMAKE_CURRENT_SOURCE_DIR}/deploy/package)
set(manual ${CMAKE_CURRENT_BINARY_DIR}/manual)
add_custom_command(OUTPUT ${manual}/made VERBATIM
  DEPENDS weft weft-controller weft-worker weft-cli ${makers}/help_text.py ${makers}/manual.py ${makers}/completion.py
  COMMAND ${Python3_EXECUTABLE} -B ${makers}/manual.py ${CMAKE_CURRENT_BINARY_DIR} ${PROJECT_VERSION} ${PROJECT_DESCRIPTION}
    ${manual}/man1
  COMMAND ${Python3_EXECUTABLE} -B ${makers}/completion.py ${CMAKE_CURRENT_BINARY_DIR} ${manual}/completion
  COMMAND ${CMAKE_COMMAND} -E touch ${manual}/made)
add_custom_target(weft_manual ALL DEPENDS ${manual}/made)
install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools)
install(DIRECTORY ${manual}/completion/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(DIRECTORY ${manual}/completion/zsh/ DESTINATION ${WEFT_ZSH_FOLDER} COMPONENT tools)
