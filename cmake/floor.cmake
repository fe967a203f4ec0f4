# Toolchain of ./feroce dist: this machine's compiler with an older C library, from a folder that
# tools/dist/sysroot.sh fills, so that what is built runs on systems that have no newer one.
# Variable (environment): FEROCE_SYSROOT, that folder.
set(CMAKE_SYSROOT $ENV{FEROCE_SYSROOT})
execute_process(COMMAND c++ -print-multiarch OUTPUT_VARIABLE triplet
                OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet})
set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

# Debian's compiler looks for the C library beside itself first, whatever its --sysroot.
set(place ${CMAKE_SYSROOT}/usr/lib/${triplet})
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
      "-B${place}/ -L${place} -L${CMAKE_SYSROOT}/lib/${triplet} -Wl,--as-needed")
endforeach()
# glibc has these libraries inside since 2.34; floor.o is what it did not have at all.
set(CMAKE_C_STANDARD_LIBRARIES "-lpthread -ldl -lrt")
set(CMAKE_CXX_STANDARD_LIBRARIES "${place}/floor.o -lpthread -ldl -lrt")
