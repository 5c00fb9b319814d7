# What a wheel has instead of what cmake/install.cmake puts beside a system's libraries: pyproject.toml builds it. All of it
# lies in the package's folder, and what has several names there (symbolic links are none of a wheel's) has one.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter)
set(headers ${CMAKE_CURRENT_SOURCE_DIR}/worker/api/weft_base.h ${CMAKE_CURRENT_SOURCE_DIR}/worker/api/weft.h)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/_binding.py VERBATIM
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/python/binding.py ${headers}
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/python/binding.py ${CMAKE_CURRENT_BINARY_DIR}/_binding.py ${headers})
add_custom_target(weft_binding ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/_binding.py)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_binding.py DESTINATION .)

set_property(TARGET weft PROPERTY VERSION)
set_target_properties(weft-controller weft-worker weft-cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS weft-controller weft-worker weft-cli RUNTIME DESTINATION bin)
install(TARGETS weft LIBRARY DESTINATION lib NAMELINK_SKIP)
install(FILES ${headers} worker/api/weft_play.h DESTINATION include)
install(DIRECTORY routing/report/schema model/schema DESTINATION share/weft FILES_MATCHING PATTERN "*.schema.json")
