# routing/lab/scenarios/published.json as bytes in the library (routing/lab/scenario.h), and installed.
set(published ${CMAKE_CURRENT_SOURCE_DIR}/routing/lab/scenarios/published.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${published})
file(READ ${published} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/published_json.c CONTENT
"#include \"routing/lab/scenario.h\"
const unsigned char scenario_published_json[] = {@bytes@};
const size_t scenario_published_bytes = sizeof(scenario_published_json);
" @ONLY)
list(APPEND WEFT_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/published_json.c)
install(FILES ${published} DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/scenarios COMPONENT tools)
