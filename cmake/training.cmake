# Release builds with GCC compile the drop-in by what it does: once with counters, which a few
# seconds of traffic over loopback fill (bench/verbs/verbs_limits.cpp), then by what they counted.
# That is a tenth of its latency (ADR 0011). Trained once a build folder: after a change of a source
# the counters of functions that changed are not used, which costs nothing but speed.
#
# It is optimized as a whole, too: a fifth less of our own time a message. Everything else links the
# same objects the plain way, which is quicker.
#
# FEROCE_TRAIN: ON; `whole`, as a whole but without counters; OFF, neither of them; `record`, which
# train.sh uses for the first of the two.
set(FEROCE_TRAIN ON CACHE STRING "Compile the drop-in by counters of what it does (Release, GCC)")
if(FEROCE_TRAIN)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -flto)
  check_cxx_source_compiles("int main() { return 0; }" FEROCE_LINKS_WHOLE)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT FEROCE_LINKS_WHOLE)
    message(STATUS "The drop-in will be slower than it could: the compiler cannot link with -flto")
  endif()
endif()
if(FEROCE_TRAIN AND FEROCE_LINKS_WHOLE)
  set(FEROCE_WHOLE_OBJECTS -flto -ffat-lto-objects)
  set(FEROCE_WHOLE_LINK -flto=auto)
  # GCC's linker plugin takes up such objects unless it is told not to. Once told, -flto= does not
  # bring it back, so the library that is a whole is left out.
  add_link_options($<$<NOT:$<BOOL:$<TARGET_PROPERTY:FEROCE_WHOLE>>>:-fno-lto>)
endif()
set(by_folder -fprofile-prefix-path=${CMAKE_BINARY_DIR})
if(FEROCE_TRAIN STREQUAL record)
  # Counters are placed before a library is optimized as a whole, so this one is not: half the time.
  set(FEROCE_WHOLE_OBJECTS -O3 -fprofile-generate=${FEROCE_COUNTERS} ${by_folder}
      -fprofile-update=prefer-atomic)
  set(FEROCE_WHOLE_LINK -fprofile-generate)
elseif(FEROCE_TRAIN AND NOT FEROCE_TRAIN STREQUAL whole AND NOT CMAKE_CROSSCOMPILING)
  set(counters ${CMAKE_BINARY_DIR}/training)
  # What the traffic does not reach is optimized as if there were no counters.
  list(APPEND FEROCE_WHOLE_OBJECTS -O3 -fprofile-use=${counters} ${by_folder}
       -fprofile-partial-training -fprofile-correction -fno-vpt
       -Wno-missing-profile -Wno-coverage-mismatch)
  # Warnings about the flow of values depend on what is inlined, and so on the counters of the day:
  # shown here, and errors in every build without counters.
  foreach(flow array-bounds dangling-pointer free-nonheap-object
          maybe-uninitialized nonnull restrict stringop-overflow stringop-overread use-after-free)
    list(APPEND FEROCE_WHOLE_OBJECTS -Wno-error=${flow})
  endforeach()
  add_custom_command(
    OUTPUT ${counters}/done
    COMMAND ${CMAKE_SOURCE_DIR}/cmake/train.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${counters}
            -G ${CMAKE_GENERATOR}
    USES_TERMINAL  # It takes minutes, and shows how far it is.
    COMMENT "Training the drop-in: see cmake/training.cmake" VERBATIM)
  add_custom_target(training DEPENDS ${counters}/done)
endif()
