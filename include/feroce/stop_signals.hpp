// StopSignals: SIGINT and SIGTERM, or others, stop a loop's run() instead of ending the process.
// One at a time in a process; the old actions are back when it is destroyed.
//
//     StopSignals stops(loop);
//     loop.run();
#pragma once

#include <csignal>
#include <initializer_list>
#include <utility>
#include <vector>

#include "feroce/loop.hpp"

namespace feroce::rdma {

class StopSignals {
public:
    explicit StopSignals(Loop& loop) : StopSignals(loop, {SIGINT, SIGTERM}) {}
    StopSignals(Loop& loop, std::initializer_list<int> signals);
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

private:
    std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace feroce::rdma
