// What our own threads do when there is no memory: they go on without what they could not do, and
// try again later or leave it to the peer, as with a lost packet. Calls of the program are told of
// it instead: see process/abi_call.hpp.
#pragma once

#include <new>
#include <stdexcept>

namespace feroce {

// Does `work`; false if there was no memory for it. What it had begun is then undone, or can be
// begun again.
template <class Work>
[[nodiscard]] bool with_memory(Work&& work) {
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // More than any memory.
    }
    return false;
}

}  // namespace feroce
