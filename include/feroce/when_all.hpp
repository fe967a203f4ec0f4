// when_all: tasks of several loops, run by one thread. For loops that get threads of their own
// later: a loop belongs to one thread at a time.
#pragma once

#include <vector>

#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/task.hpp"

namespace feroce::rdma {

struct LoopTask {
    Loop& loop;
    Task<Result<>> task;
};

// Blocks: drives the loops until every task has ended, and sleeps while none of them has anything
// to do. Gives the error of the first task in this order that failed. Limits of the caller do not
// reach the tasks: give each its own.
Result<> when_all(std::vector<LoopTask> tasks);

}  // namespace feroce::rdma
