// AllocationWatch: what is allocated while the allocating thread holds a lock of ours. For a test
// program, whose allocator it replaces.
#pragma once

#include <string>

namespace feroce::verbs::allocation_watch {

// A thread of the program is watched while it has one of these: control calls allocate, and some
// of them under a lock. Threads of ours are watched always.
class DataPath {
public:
    DataPath();
    ~DataPath();
    DataPath(const DataPath&) = delete;
    DataPath& operator=(const DataPath&) = delete;
};

void begin();  // The calling thread is the program's.
// Where it was allocated, a stack each, and forgets it; empty if nothing was.
std::string findings();
// What the calling thread has allocated: the watch itself must not be blind.
unsigned long allocations();

}  // namespace feroce::verbs::allocation_watch
