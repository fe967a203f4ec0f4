# Toolchain: Debian's cross compiler, with libraries of the other architecture from a folder, which
# tests/cross/run.sh fills; nothing foreign need be installed. Variables (environment):
#   FEROCE_CROSS_TRIPLET  aarch64-linux-gnu or x86_64-linux-gnu
#   FEROCE_CROSS_ROOT     that folder
set(triplet $ENV{FEROCE_CROSS_TRIPLET})
set(root $ENV{FEROCE_CROSS_ROOT})
string(REGEX REPLACE "-.*" "" processor ${triplet})
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${processor})
set(CMAKE_C_COMPILER ${triplet}-gcc)
set(CMAKE_CXX_COMPILER ${triplet}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${triplet})

# The compiler brings libc and libstdc++ in /usr/TRIPLET; all else is in the folder.
set(CMAKE_FIND_ROOT_PATH ${root} /usr/${triplet})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "-idirafter ${root}/usr/include")
endforeach()
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT
      "-L${root}/usr/lib/${triplet} -Wl,-rpath-link,${root}/usr/lib/${triplet}")
endforeach()

# Tests run in the emulator, which gets the same two places for shared libraries.
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-${processor};-L;/usr/${triplet};-E;LD_LIBRARY_PATH=${root}/usr/lib/${triplet})
