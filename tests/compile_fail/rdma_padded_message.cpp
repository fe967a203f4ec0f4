// A value with padding would show the peer what lay on the stack.
// expect: (no matching function|constraints not satisfied)
#include <cstdint>

#include "feroce/bytes.hpp"

struct Question {
    std::uint64_t number;
    std::uint32_t kind;
#ifndef MISTAKE
    std::uint32_t reserved;
#endif
};

std::size_t size_of_message(const Question& question) {
    return feroce::rdma::bytes_of(question).size();
}
