// InvariantChecker: what a queue pair's machine says of itself holds after every event.
#pragma once

#include <string>

#include "sim/check/report.hpp"
#include "transport/queue_pair.hpp"

namespace feroce::sim {

class InvariantChecker {
public:
    static constexpr const char* kName = "invariants";

    explicit InvariantChecker(Report& report) : report_(report) {}

    void check(std::uint32_t node, const transport::QueuePair& qp) {
        const char* broken = qp.machine().check_invariants();
        if (broken == nullptr) return;
        report_.fail(kName, "node " + std::to_string(node) + ": queue pair " +
                                std::to_string(qp.qpn().raw) + ": " + broken);
    }

private:
    Report& report_;
};

}  // namespace feroce::sim
