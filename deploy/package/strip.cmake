# What Debian strips (dh_strip): run by CPack between staging and packing (cmake/package.cmake).
file(GLOB_RECURSE files LIST_DIRECTORIES false ${CPACK_TEMPORARY_DIRECTORY}/*/usr/bin/* ${CPACK_TEMPORARY_DIRECTORY}/*/usr/lib/*.so.*)
foreach(file ${files})
  if(NOT IS_SYMLINK "${file}")
    execute_process(COMMAND strip --strip-unneeded --remove-section=.comment --remove-section=.note "${file}"
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
