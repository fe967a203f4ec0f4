# The presets of sanitizers join the sources of a target, eight at a time (CMAKE_UNITY_BUILD): that
# halves their build. A source that has a name in common with a neighbour is compiled by itself: if
# such a build complains of a redefinition, rename one of the two, or add the file here.
function(feroce_apart folder)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/${folder}/ OUTPUT_VARIABLE sources)
  set_source_files_properties(${sources} DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(CMAKE_UNITY_BUILD)
  # GCC takes a joined source for a header, whose types should have linkage.
  target_compile_options(feroce_options INTERFACE
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  feroce_apart(src/wire pcapng_writer.cpp headers_test.cpp icrc_test.cpp pcapng_test.cpp)
  feroce_apart(src/mem window_test.cpp)
  feroce_apart(src/device send_windows_test.cpp)
  feroce_apart(src/port relay_server.cpp relay_watch_test.cpp seat_policy_test.cpp)
  feroce_apart(src/rdma frame.cpp inbox.cpp)
  feroce_apart(src/rtrs server_answer.cpp workers_test.cpp)
  feroce_apart(src/block file_fault_test.cpp)
  feroce_apart(src/cli export.cpp export_door.cpp session.cpp state.cpp trace.cpp trace_live.cpp
                       remarks_test.cpp)
  if(FEROCE_SINGLE_THREADED_TESTS)
    feroce_apart(src/gas node_core.cpp placement.cpp sync/mcs_lock.cpp)
    feroce_apart(tests/abi calls_blocking.cpp calls_rdmacm.cpp calls_verbs.cpp)
    feroce_apart(tests/script rc_responder_test.cpp)
    feroce_apart(tests/sim abi_storm_test.cpp abi_verbs_test.cpp gas_crash_test.cpp gas_ds_test.cpp
                           gas_limits_test.cpp gas_lock_test.cpp gas_sync_test.cpp)
  endif()
endif()
