# Toolchain of ./feroce dist: Debian's compiler with an older C library, from a folder that
# tools/dist/sysroot.sh fills, so that what is built runs on systems that have no newer one.
# Variables (environment):
#   FEROCE_SYSROOT  that folder
#   FEROCE_TRIPLET  aarch64-linux-gnu or x86_64-linux-gnu; Debian's cross compiler builds for the
#                   one that is not this machine's
set(CMAKE_SYSROOT $ENV{FEROCE_SYSROOT})
set(triplet $ENV{FEROCE_TRIPLET})
execute_process(COMMAND c++ -print-multiarch OUTPUT_VARIABLE here OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet})
set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

# The cross compiler looks for headers of the C library beside itself before it looks in --sysroot:
# it gets the whole list of places.
if(NOT triplet STREQUAL here)
  string(REGEX REPLACE "-.*" "" processor ${triplet})
  set(CMAKE_SYSTEM_NAME Linux)
  set(CMAKE_SYSTEM_PROCESSOR ${processor})
  set(CMAKE_C_COMPILER ${triplet}-gcc)
  set(CMAKE_CXX_COMPILER ${triplet}-g++)
  execute_process(COMMAND ${triplet}-g++ -print-file-name=include OUTPUT_VARIABLE own
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${triplet}-g++ -dumpversion OUTPUT_VARIABLE version
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(of_c "-isystem ${own} -isystem ${CMAKE_SYSROOT}/usr/include/${triplet}")
  string(APPEND of_c " -isystem ${CMAKE_SYSROOT}/usr/include")
  set(of_cxx /usr/${triplet}/include/c++/${version})
  set(CMAKE_C_FLAGS_INIT "-nostdinc ${of_c}")
  set(CMAKE_CXX_FLAGS_INIT "-nostdinc -isystem ${of_cxx} -isystem ${of_cxx}/${triplet}")
  string(APPEND CMAKE_CXX_FLAGS_INIT " -isystem ${of_cxx}/backward ${of_c}")
endif()

# Debian's compiler looks for the C library beside itself first, whatever its --sysroot.
set(place ${CMAKE_SYSROOT}/usr/lib/${triplet})
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
      "-B${place}/ -L${place} -L${CMAKE_SYSROOT}/lib/${triplet} -Wl,--as-needed")
endforeach()
# glibc has these libraries inside since 2.34; floor.o is what it did not have at all.
set(CMAKE_C_STANDARD_LIBRARIES "-lpthread -ldl -lrt")
set(CMAKE_CXX_STANDARD_LIBRARIES "${place}/floor.o -lpthread -ldl -lrt")
