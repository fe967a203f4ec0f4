// `feroce doctor`: what on this machine would stop or slow RDMA, in sentences, each with the
// command that mends it. Changes nothing. Whether a device can be opened is tried by a child
// process, which ends at once: doctor and programs must not disagree.
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

// doctor_open.cpp: what came of opening a device.
struct Trial {
    bool tried = false;  // False: there is no device, or no child could be made.
    bool opened = false;
    int error = 0;  // An errno, of one that was refused.
    std::string device;
    std::string why;  // It was refused, as a program is told.
};
Trial try_device();
std::vector<Finding> check_open(const Trial& trial);

// doctor_port.cpp: who holds UDP port 4791 in this network namespace.
std::vector<Finding> check_udp_port(const Trial& trial);

// doctor_gpu.cpp: whether memory of a GPU can be registered here.
std::vector<Finding> check_gpu();

// Exit status: 1 if something stops RDMA. `program` may be empty.
int doctor(const std::string& program, const OutputOptions& options);

}  // namespace feroce::cli
