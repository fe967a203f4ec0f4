// What librdmacm.so.1 gets of us beyond the public ABI: the connection manager of this process, by
// the private version node FEROCE_1. Another libibverbs lacks the node, so librdmacm does not load
// beside it.
#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "process/cm_server.hpp"
#include "verbs/common.hpp"

namespace feroce::verbs {
namespace {

std::atomic<process::CmServer*> current{nullptr};

void in_forked_child() {
    if (process::CmServer* old = current.exchange(nullptr)) old->abandon();
}

void at_exit() {
    if (process::CmServer* server = current.load()) server->finish();
}

process::CmServer* start_server() {
    process::Process& process = process_object();  // First, so that its exit handler runs last.
    static const bool hooked = [] {
        std::atexit(at_exit);
        return ::pthread_atfork(nullptr, nullptr, in_forked_child) == 0;
    }();
    ASSERT(hooked);
    const Result<process::CmServer*> started = process::CmServer::start(process);
    if (started) return *started;
    process::log(process::LogLevel::Error, "rdma_cm: %s", started.error().why);
    errno = started.error().code;
    return nullptr;
}

}  // namespace
}  // namespace feroce::verbs

using namespace feroce;
using namespace feroce::verbs;

// Starts the connection manager if `start`; else null if it does not run in this process. Null with
// errno set if it cannot be started.
extern "C" [[gnu::visibility("default")]] process::CmService* feroce_cm_service(bool start) {
    if (process::CmServer* existing = current.load()) return existing;
    if (!start) return nullptr;
    static std::mutex& mutex = *new std::mutex;  // Leaked: it may be needed at exit.
    const std::lock_guard lock(mutex);
    if (process::CmServer* existing = current.load()) return existing;
    process::CmServer* fresh = start_server();
    current.store(fresh);
    return fresh;
}
