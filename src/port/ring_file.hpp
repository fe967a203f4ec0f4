// RingFile: the memory of a packet ring, mapped. Its writer makes it and passes the descriptor to
// the reader; sealed, so that neither can take pages away from under the other.
#pragma once

#include "port/fd.hpp"

namespace feroce::port {

// Where the kernel promises no more memory than there is (vm.overcommit_memory=2), a page that is
// touched for the first time may be refused, by a signal. So a ring takes all of them at once.
bool ring_takes_all_pages();

class RingFile {
public:
    RingFile() = default;
    ~RingFile() { unmap(); }
    RingFile(const RingFile&) = delete;
    RingFile& operator=(const RingFile&) = delete;

    Fd make();          // All zero, and mapped; the descriptor for the reader. Not valid: failed.
    bool map(Fd made);  // One that another process has made. False: it is none.
    void unmap();
    void* memory() const { return memory_; }  // Null while nothing is mapped.

private:
    bool map_pages(int fd);

    void* memory_ = nullptr;
};

}  // namespace feroce::port
