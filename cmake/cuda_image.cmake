# cmake -DOUTPUT=FILE -DKEPT=FOLDER "-DSOURCES=.." "-DCOMPILE=.." -P cmake/cuda_image.cmake: the image of the kernels. A compiler
# takes half a minute for it and every build (release, asan, tsan, fuzz, a wheel) has the same, so it is kept, by what it is made of.
cmake_minimum_required(VERSION 3.25)
list(GET COMPILE 0 compiler)
execute_process(COMMAND ${compiler} --version OUTPUT_VARIABLE made_of COMMAND_ERROR_IS_FATAL ANY)
string(APPEND made_of "${COMPILE}")
foreach(source ${SOURCES})
  file(SHA256 ${source} hash)
  string(APPEND made_of " ${hash}")
endforeach()
string(SHA256 key "${made_of}")
set(kept ${KEPT}/${key}.fatbin)
if(NOT EXISTS ${kept})
  file(MAKE_DIRECTORY ${KEPT})
  string(RANDOM LENGTH 16 random) # two builds may want it at once
  execute_process(COMMAND ${COMPILE} -o ${kept}.${random} COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME ${kept}.${random} ${kept})
endif()
file(COPY_FILE ${kept} ${OUTPUT})
