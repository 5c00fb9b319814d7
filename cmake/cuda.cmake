# CUDA: the kernels of pack/cuda compiled for devices, and the runtime, linked statically (transport/cuda). Options:
#   WEFT_CUDA       auto (when a toolkit is found), on (without one that is an error) or off
#   WEFT_CUDA_ROOT  the toolkit's folder; empty: look for one
# Sets WEFT_CUDA_FOUND, WEFT_CUDA_LIBRARIES, WEFT_CUDA_INCLUDES and WEFT_CUDA_IMAGE (a file).
set(WEFT_CUDA auto CACHE STRING "auto, on or off")
set_property(CACHE WEFT_CUDA PROPERTY STRINGS auto on off)
set(WEFT_CUDA_ROOT "" CACHE PATH "folder of the CUDA toolkit; empty: look for one")
set(WEFT_CUDA_FOUND OFF)
string(TOLOWER "${WEFT_CUDA}" WEFT_CUDA_WANTED)
if(NOT WEFT_CUDA_WANTED MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "WEFT_CUDA is '${WEFT_CUDA}': use auto, on or off")
endif()

include(cmake/cuda_find.cmake)
if(NOT WEFT_CUDA_WANTED STREQUAL "off")
  weft_cuda_find()
endif()
if(NOT WEFT_CUDA_FOUND)
  return()
endif()

# One image for all devices: code for what is in use, and PTX from which a driver makes code for the rest.
set(architectures 80 90)
if(WEFT_CUDA_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND architectures 100)
endif()
set(WEFT_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "architectures that get code; the first one gets PTX too")
set(codes)
foreach(architecture ${WEFT_CUDA_ARCHITECTURES})
  list(APPEND codes -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET WEFT_CUDA_ARCHITECTURES 0 oldest)
list(APPEND codes -gencode arch=compute_${oldest},code=compute_${oldest})
file(GLOB kernels CONFIGURE_DEPENDS pack/cuda/*.cu pack/cuda/*.h pack/element.h)
set(WEFT_CUDA_IMAGE ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
# the bits must be the processor's: no contraction, exact division
set(compile ${WEFT_CUDA_NVCC} -std=c++17 -O3 -fmad=false -prec-div=true -ftz=false -fatbin ${codes}
  -I ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/pack/cuda/kernels.cu)
set(kept ${CMAKE_CURRENT_BINARY_DIR})
if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/build) # where all presets' builds are
  set(kept ${CMAKE_CURRENT_SOURCE_DIR}/build/kernels)
endif()
add_custom_command(OUTPUT ${WEFT_CUDA_IMAGE} DEPENDS ${kernels} cmake/cuda_image.cmake VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${WEFT_CUDA_IMAGE} -DKEPT=${kept} "-DSOURCES=${kernels}" "-DCOMPILE=${compile}"
  -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda_image.cmake)
set(WEFT_CUDA_LIBRARIES ${WEFT_CUDA_RUNTIME} ${CMAKE_DL_LIBS} Threads::Threads rt)
