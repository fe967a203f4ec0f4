// What feroce_close() closes.
#pragma once

#include <memory>

#include "feroce/task.hpp"
#include "python/call.hpp"
#include "python/loop_thread.hpp"

namespace feroce::python {

class Closable : public Object {
public:
    virtual const LoopThread& thread() const = 0;
    virtual rdma::Task<void> close(std::shared_ptr<Call> call) = 0;
};

}  // namespace feroce::python
