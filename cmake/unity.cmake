# Presets of CI join the sources of a target, eight at a time (CMAKE_UNITY_BUILD): the headers that
# neighbours share are read once, which halves a build. Two files of a target that give a local name
# twice are told so: rename one of the two, or put a test into a namespace of its own.
if(NOT CMAKE_UNITY_BUILD)
  return()
endif()
# The more fit together, the fewer times headers are read.
# What changes is compiled with all that it is joined to: presets for tests alone join more.
set(FEROCE_JOINED 16 CACHE STRING "Sources of port, process, rdma and rtrs that are joined")
foreach(room transport device sim verbs rdmacm block)
  if(TARGET feroce_${room})
    set_target_properties(feroce_${room} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  endif()
endforeach()
foreach(room port process rdma rtrs)
  if(TARGET feroce_${room})
    set_target_properties(feroce_${room} PROPERTIES UNITY_BUILD_BATCH_SIZE ${FEROCE_JOINED})
  endif()
endforeach()
# GCC takes a joined source for a header, whose types should have linkage.
target_compile_options(feroce_options INTERFACE
                       $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
