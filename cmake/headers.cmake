# Precompiled headers: more than half of the time that a source file takes goes into the standard
# library's headers. Compilers take a precompiled header only with the flags it was made with, so
# there is one a kind of target, and targets of that kind reuse it. A source still includes all that
# it uses: the stage `includes` reads every file without them.
option(FEROCE_PRECOMPILE "Precompile the standard library's headers" ON)
set(FEROCE_COMMON_HEADERS
    <algorithm> <array> <atomic> <bit> <cerrno> <chrono> <cstddef> <cstdint> <cstring> <deque>
    <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread>
    <utility> <variant> <vector>)

# feroce_headers(KIND [PROGRAMS] [UNWATCHED] [HEADERS ...] [LIBRARIES ...] [OPTIONS ...]): the
# target whose precompiled headers others of that kind reuse.
function(feroce_headers kind)
  cmake_parse_arguments(OF "PROGRAMS;UNWATCHED" "" "HEADERS;LIBRARIES;OPTIONS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/headers/${kind}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "int main() { return 0; }\n")
  if(OF_PROGRAMS)  # Their code is position independent in another way than that of libraries.
    add_executable(feroce_headers_${kind} ${source})
  else()
    add_library(feroce_headers_${kind} OBJECT ${source})
  endif()
  set_target_properties(feroce_headers_${kind} PROPERTIES FEROCE_UNWATCHED ${OF_UNWATCHED})
  target_link_libraries(feroce_headers_${kind} PRIVATE feroce_options ${OF_LIBRARIES})
  target_compile_options(feroce_headers_${kind} PRIVATE ${OF_OPTIONS})
  target_precompile_headers(feroce_headers_${kind} PRIVATE ${FEROCE_COMMON_HEADERS} ${OF_HEADERS})
endfunction()

function(feroce_precompile target kind)
  if(TARGET feroce_headers_${kind})
    target_precompile_headers(${target} REUSE_FROM feroce_headers_${kind})
  endif()
endfunction()

if(FEROCE_PRECOMPILE)
  feroce_headers(plain)
  feroce_headers(drop_in OPTIONS ${FEROCE_WHOLE_OBJECTS})
  feroce_headers(public OPTIONS ${FEROCE_PUBLIC_OPTIONS})
  set_target_properties(feroce_headers_public PROPERTIES CXX_VISIBILITY_PRESET default)
  if(FEROCE_TESTS)
    # Programs and benchmarks are compiled as a user's program is, but where sanitizers watch them.
    if(FEROCE_SANITIZE)
      set(FEROCE_PROGRAM_OPTIONS ${FEROCE_TEST_OPTIONS})
    endif()
    feroce_headers(program PROGRAMS OPTIONS ${FEROCE_PROGRAM_OPTIONS})
    set(gtest HEADERS <gtest/gtest.h> LIBRARIES GTest::gtest)
    feroce_headers(test PROGRAMS ${gtest} OPTIONS ${FEROCE_TEST_OPTIONS})
    if(FEROCE_SANITIZE AND FEROCE_SINGLE_THREADED_TESTS)
      feroce_headers(unwatched_program PROGRAMS UNWATCHED OPTIONS ${FEROCE_PROGRAM_OPTIONS})
      feroce_headers(unwatched_test PROGRAMS UNWATCHED ${gtest} OPTIONS ${FEROCE_TEST_OPTIONS})
    endif()
  endif()
  # Their programs and tests stand beside programs of others or measure: .ci/stages.sh runs none of
  # them under sanitizers (preset_ctest).
  set(unwatched_folders "/(bench|tests/(abi|interop|rdmacm|rsocket|rtrs))$")
  # Every program and library in C++ of the folders that only tests and benchmarks fill.
  function(feroce_precompile_folder folder)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(sources ${target} SOURCES)
      get_target_property(type ${target} TYPE)
      if(NOT sources MATCHES "\\.cpp")
        continue()
      elseif(type STREQUAL EXECUTABLE)
        if(folder MATCHES "${unwatched_folders}")
          set_target_properties(${target} PROPERTIES FEROCE_UNWATCHED ON)
        endif()
        get_target_property(is_unwatched ${target} FEROCE_UNWATCHED)
        set(unwatched)
        if(is_unwatched AND TARGET feroce_headers_unwatched_test)
          set(unwatched unwatched_)
        endif()
        # GoogleTest brings a definition, and compilers compare these too.
        get_target_property(libraries ${target} LINK_LIBRARIES)
        if(NOT libraries MATCHES GTest)
          target_compile_options(${target} PRIVATE ${FEROCE_PROGRAM_OPTIONS})
          feroce_precompile(${target} ${unwatched}program)
        elseif(FEROCE_SANITIZE OR NOT folder MATCHES "/bench$")
          target_compile_options(${target} PRIVATE ${FEROCE_TEST_OPTIONS})
          feroce_precompile(${target} ${unwatched}test)
        endif()
      elseif(type STREQUAL STATIC_LIBRARY)
        feroce_precompile(${target} plain)
      endif()
    endforeach()
    get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    foreach(subfolder ${subfolders})
      feroce_precompile_folder(${subfolder})
    endforeach()
  endfunction()
  if(TARGET training)
    add_dependencies(feroce_headers_drop_in training)
  endif()
endif()
