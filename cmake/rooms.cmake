# One folder under src/ is one room is one static library. feroce_room(name SOURCES ... NEEDS ...)
# makes it; NEEDS lists the rooms it may see, which tools/tidy checks against the #includes.
# Without SOURCES the room is headers only. DROP_IN: it is part of libibverbs.so.1. PUBLIC:
# include/feroce shows it; libferoce.so exports it. COLD: no test waits long for
# what it computes, so with sanitizers it is compiled as tests are.

add_library(feroce_options INTERFACE)
target_compile_options(feroce_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow
                       $<$<BOOL:${FEROCE_WERROR}>:-Werror>
                       # A precompiled header that does not fit costs time, and nothing else.
                       -Wno-error=invalid-pch
                       # Not a warning: GCC tells of an ABI it changed long before C++20.
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi>)
target_include_directories(feroce_options INTERFACE ${CMAKE_SOURCE_DIR}/src
                           ${CMAKE_SOURCE_DIR}/include)
if(FEROCE_WATCH_LOCKS)
  target_compile_definitions(feroce_options INTERFACE FEROCE_WATCH_LOCKS)
endif()
# FEROCE_UNWATCHED: no stage runs this program under sanitizers. It compiles, and links with rooms
# that have them.
set(is_watched $<NOT:$<BOOL:$<TARGET_PROPERTY:FEROCE_UNWATCHED>>>)
if(FEROCE_SANITIZE)
  target_compile_options(feroce_options INTERFACE
                         $<${is_watched}:-fsanitize=${FEROCE_SANITIZE}>
                         $<${is_watched}:-fno-sanitize-recover=all> -fno-omit-frame-pointer)
  target_link_options(feroce_options INTERFACE -fsanitize=${FEROCE_SANITIZE})
  find_program(FEROCE_LLD ld.lld)  # A quarter of the time, for 150 programs.
  if(FEROCE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
else()
  set(FEROCE_NO_UNDEFINED -Wl,--no-undefined)  # A sanitizer's runtime is left to the program.
endif()
if(FEROCE_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # TSan does not see fences. Those we have stand before memory that other processes write.
  target_compile_options(feroce_options INTERFACE -Wno-tsan)
endif()
if(CMAKE_BUILD_TYPE STREQUAL Release AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT FEROCE_SANITIZE)
  include(training)
endif()
# Programs may put a function of their own before an exported one of ours, so GCC calls even its
# neighbours from afar, and inlines none. Nobody does that to C++ libraries.
if(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  set(FEROCE_PUBLIC_OPTIONS -fno-semantic-interposition)
endif()
# GCC's generic tuning clears a structure by `rep stos`, which takes tens of cycles to begin. A few
# stores do for headers and work requests, of which every message meets several. One range only:
# GCC cuts the text of several apart where it lies, and then refuses its own precompiled headers.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  target_compile_options(feroce_options INTERFACE
                         -mmemset-strategy=vector_loop:-1:noalign)
endif()
# GCC looks for memory to take back when it has 128 MiB, though a joined source needs 300 to its
# end: 5 to 14 % of its time. Where every processor has memory for a compiler, it begins later.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  cmake_host_system_information(RESULT mebibytes QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR share "${mebibytes} / ${processors}")
  if(share GREATER 1500)
    target_compile_options(feroce_options INTERFACE
                           $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  endif()
endif()
if(FEROCE_FUZZ)
  # clang 14 cannot emit the marks of the sanitizer `function` before the parts of a coroutine.
  target_compile_options(feroce_options INTERFACE $<${is_watched}:-fno-sanitize=function>)
endif()

include(headers)

function(feroce_room name)
  cmake_parse_arguments(ROOM "DROP_IN;PUBLIC;COLD" "" "SOURCES;NEEDS;LIBRARIES" ${ARGN})
  if(NOT ROOM_SOURCES)
    add_library(feroce_${name} INTERFACE)
    list(TRANSFORM ROOM_NEEDS PREPEND feroce_)
    target_link_libraries(feroce_${name} INTERFACE feroce_options ${ROOM_NEEDS})
    return()
  endif()
  add_library(feroce_${name} STATIC ${ROOM_SOURCES})
  if(ROOM_DROP_IN)
    target_compile_options(feroce_${name} PRIVATE ${FEROCE_WHOLE_OBJECTS})
    if(TARGET training)
      add_dependencies(feroce_${name} training)
    endif()
  endif()
  if(ROOM_PUBLIC)
    set_target_properties(feroce_${name} PROPERTIES CXX_VISIBILITY_PRESET default)
  endif()
  if(ROOM_PUBLIC AND NOT ROOM_DROP_IN)
    target_compile_options(feroce_${name} PRIVATE ${FEROCE_PUBLIC_OPTIONS})
    feroce_precompile(feroce_${name} public)
  elseif(ROOM_DROP_IN AND NOT ROOM_PUBLIC AND FEROCE_WHOLE_OBJECTS)
    feroce_precompile(feroce_${name} drop_in)
  elseif(ROOM_COLD AND FEROCE_SANITIZE)
    target_compile_options(feroce_${name} PRIVATE ${FEROCE_TEST_OPTIONS})
    feroce_precompile(feroce_${name} cold)
  elseif(NOT ROOM_PUBLIC)
    feroce_precompile(feroce_${name} plain)
  endif()
  target_link_libraries(feroce_${name} PUBLIC feroce_options)
  foreach(need ${ROOM_NEEDS})
    target_link_libraries(feroce_${name} PUBLIC feroce_${need})
  endforeach()
  target_link_libraries(feroce_${name} PUBLIC ${ROOM_LIBRARIES})
endfunction()

# All of an archive becomes part of a shared library, also what nothing in it asks for. CMake 3.24
# has $<LINK_LIBRARY:WHOLE_ARCHIVE>.
function(feroce_link_whole library archive)
  target_link_libraries(${library} PRIVATE -Wl,--push-state,--whole-archive
                        $<TARGET_FILE:${archive}> -Wl,--pop-state ${archive})
endfunction()

# feroce_unit_test(room TESTS a_test.cpp ... [NEEDS rooms] [LIBRARIES libs] [ONE_THREAD]
# [FIGURES Suite.Test ...]): a gtest binary a room. ONE_THREAD: neither the room nor its tests begin
# a second one. FIGURES: tests that repeat the same calls millions of times to judge a number or a
# limit. Sanitizers see these calls in the other tests, and leave these out.
function(feroce_unit_test name)
  if(NOT FEROCE_TESTS)
    return()
  endif()
  cmake_parse_arguments(UNIT "ONE_THREAD" "" "TESTS;NEEDS;LIBRARIES;FIGURES" ${ARGN})
  if(UNIT_ONE_THREAD AND NOT FEROCE_SINGLE_THREADED_TESTS)
    return()
  endif()
  add_executable(${name}_test ${UNIT_TESTS})
  target_compile_options(${name}_test PRIVATE ${FEROCE_TEST_OPTIONS})
  feroce_precompile(${name}_test test)
  target_link_libraries(${name}_test PRIVATE feroce_${name} GTest::gtest_main ${UNIT_LIBRARIES})
  foreach(need ${UNIT_NEEDS})
    target_link_libraries(${name}_test PRIVATE feroce_${need})
  endforeach()
  set(filter)
  if(UNIT_FIGURES AND FEROCE_SANITIZE)
    list(JOIN UNIT_FIGURES : figures)
    set(filter --gtest_filter=-${figures})
  endif()
  add_test(NAME unit.${name} COMMAND ${name}_test ${filter})
  set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 300)
endfunction()

# `product` is what people run: all targets of src/ but the tests. So one build folder serves
# `./feroce build` and `./feroce test`, and nothing is compiled twice. `commands` is all of it that
# the commands of ./feroce run: without the library for Python, which takes a tenth of the time.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
add_custom_target(commands)
add_custom_target(product)
add_dependencies(product commands)
function(feroce_collect_product)
  get_property(folders DIRECTORY ${CMAKE_SOURCE_DIR}/src PROPERTY SUBDIRECTORIES)
  foreach(folder ${folders})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER targets EXCLUDE REGEX "_test$")
    if(targets AND folder MATCHES "/python$")
      add_dependencies(product ${targets})
    elseif(targets)
      add_dependencies(commands ${targets})
    endif()
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL feroce_collect_product)
