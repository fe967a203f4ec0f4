// What a process holds: open descriptors and bytes of heap, to see what a connection leaves behind.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <cstddef>

struct Usage {
    std::size_t descriptors;
    std::size_t heap_bytes;
};

inline Usage usage_now() {
    std::size_t entries = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (folder != nullptr && ::readdir(folder) != nullptr) entries++;
    if (folder != nullptr) ::closedir(folder);
    // Two of the entries are dots and one is the folder itself.
    return {entries - 3, ::mallinfo2().uordblks};
}
