// `feroce doctor`: what on this machine would stop or slow RDMA, in sentences, each with the
// command that mends it. Looks and changes nothing; opens no device.
#pragma once

#include <string>
#include <vector>

#include "cli/output.hpp"

namespace feroce::cli {

enum class Verdict : std::uint8_t { Good, Note, Slow, Stop };

struct Finding {
    Verdict verdict = Verdict::Good;
    std::string topic;  // One word, for scripts.
    std::string sentence;
    std::string mend;  // A command; empty if there is nothing to mend.
};

// doctor_port.cpp: who holds UDP port 4791 in this network namespace.
std::vector<Finding> check_udp_port();

// Exit status: 1 if something stops RDMA. `program` may be empty.
int doctor(const std::string& program, const OutputOptions& options);

}  // namespace feroce::cli
