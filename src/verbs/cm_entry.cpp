// What librdmacm.so.1 gets of us beyond the public ABI: the connection manager of this process, by
// the private version node FEROCE_1. Another libibverbs lacks the node, so librdmacm does not load
// beside it.
#include "verbs/common.hpp"
#include "verbs/instance.hpp"

using namespace feroce;
using namespace feroce::verbs;

// Whether lint looks at the program, and what an id that it destroys has left of its events.
extern "C" [[gnu::visibility("default")]] bool feroce_lint_is_on() {
    const Instance* instance = Instance::current();
    return instance != nullptr && instance->lint != nullptr;
}
extern "C" [[gnu::visibility("default")]] void feroce_lint_cm_events(std::uint32_t fetched,
                                                                     std::uint32_t acknowledged) {
    if (!feroce_lint_is_on()) return;
    Instance::current()->lint->tell([&](lint::Linter& linter, lint::Place place) {
        linter.cm_destroys({.fetched = fetched, .acknowledged = acknowledged}, place);
    });
}

// Starts the connection manager if `start`; else null if it does not run in this process. Null with
// errno set if it cannot be started.
extern "C" [[gnu::visibility("default")]] process::CmService* feroce_cm_service(bool start) {
    if (!start) {  // Asked at the beginning of every call: takes neither memory nor locks.
        Instance* instance = Instance::current();
        return instance == nullptr ? nullptr : instance->cm_server(false);
    }
    return abi_call("feroce_cm_service", []() -> process::CmService* {
        Instance& instance = Instance::get();
        if (process::CmServer* running = instance.cm_server(false)) return running;
        if (const Result<void> there = instance.check_devices(); !there)
            return refuse_null("rdma_cm", there.error());
        return instance.cm_server(true);
    });
}
