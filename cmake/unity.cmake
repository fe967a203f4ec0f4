# The presets of sanitizers join the sources of a target, eight at a time (CMAKE_UNITY_BUILD): that
# halves their build. Release joins those of tests (FEROCE_JOIN_TESTS). A source that has a name in
# common with a neighbour is compiled by itself: if such a build complains of a redefinition, rename
# one of the two, put its test into a namespace of its own, or add the file here.
function(feroce_apart folder)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/${folder}/ OUTPUT_VARIABLE sources)
  set_source_files_properties(${sources} DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(feroce_join_folder folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      feroce_join(${target})
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${subfolders})
    feroce_join_folder(${subfolder})
  endforeach()
endfunction()

if(FEROCE_TESTS AND FEROCE_JOIN_TESTS)
  feroce_join_folder(${CMAKE_SOURCE_DIR}/tests)
  feroce_join_folder(${CMAKE_SOURCE_DIR}/fuzz)
endif()
if(CMAKE_UNITY_BUILD)
  # Rooms without a name in common: the more fit together, the fewer times headers are read, which
  # is most of what the linter does.
  foreach(room transport device sim verbs rdmacm block)
    if(TARGET feroce_${room})
      set_target_properties(feroce_${room} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
    endif()
  endforeach()
  target_compile_options(feroce_options INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(CMAKE_UNITY_BUILD OR FEROCE_JOIN_TESTS)
  feroce_apart(src/wire pcapng_writer.cpp headers_test.cpp icrc_test.cpp pcapng_test.cpp)
  feroce_apart(src/mem window_test.cpp)
  feroce_apart(src/device send_windows_test.cpp)
  feroce_apart(src/port relay_server.cpp relay_watch_test.cpp seat_policy_test.cpp)
  feroce_apart(src/rdma frame.cpp inbox.cpp)
  feroce_apart(src/rtrs server_answer.cpp workers_test.cpp)
  feroce_apart(src/block file_fault_test.cpp)
  feroce_apart(src/cli export.cpp export_door.cpp session.cpp state.cpp trace.cpp trace_live.cpp
                       remarks_test.cpp)
  if(TARGET feroce_gas)
    feroce_apart(src/gas names.cpp node_core.cpp placement.cpp survivors.cpp sync/mcs_lock.cpp)
  endif()
  if(FEROCE_TESTS AND FEROCE_SINGLE_THREADED_TESTS)
    feroce_apart(tests/abi calls_blocking.cpp calls_rdmacm.cpp calls_verbs.cpp)
    feroce_apart(tests/script rc_responder_test.cpp)
    feroce_apart(tests/sim abi_storm_test.cpp abi_verbs_test.cpp block_cancel_test.cpp
                           block_history_test.cpp)
  endif()
endif()
