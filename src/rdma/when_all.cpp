#include "feroce/when_all.hpp"

#include <algorithm>

namespace feroce::rdma {

Result<> when_all(std::vector<LoopTask> tasks) {
    std::vector<Loop*> loops;
    for (LoopTask& one : tasks)
        if (std::find(loops.begin(), loops.end(), &one.loop) == loops.end())
            loops.push_back(&one.loop);
    for (LoopTask& one : tasks) one.task.start();
    const auto ended = [](const LoopTask& one) { return one.task.done(); };
    while (!std::all_of(tasks.begin(), tasks.end(), ended)) Loop::poll_or_wait_all(loops);
    Result<> first;
    for (LoopTask& one : tasks)
        if (Result<> done = one.task.await_resume(); !done && first) first = done;
    return first;
}

}  // namespace feroce::rdma
