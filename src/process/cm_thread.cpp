#include "process/cm_thread.hpp"

#include <utility>

namespace feroce::process {

Result<std::unique_ptr<CmThread>> CmThread::start(host::Host& host, host::Rendezvous& rendezvous,
                                                  Work& work) {
    std::unique_ptr<CmThread> out(new CmThread(rendezvous, work));
    Result<std::unique_ptr<host::Task>> task = host.spawn([raw = out.get()] { raw->body(); });
    if (!task) return task.error();
    out->task_ = std::move(*task);
    return out;
}

CmThread::~CmThread() {
    stop_.store(true);
    rendezvous_.wake();
    task_.reset();
}

void CmThread::body() {
    while (!stop_.load()) {
        const bool requests_waiting = rendezvous_.wait(work_.before_sleep());
        work_.turn(requests_waiting);
    }
}

}  // namespace feroce::process
