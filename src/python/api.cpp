// Queues, calls and handles for C.
#include <cerrno>

#include "python/call.hpp"
#include "python/closable.hpp"
#include "python/feroce_python.h"
#include "python/home.hpp"
#include "python/surface.hpp"

using namespace feroce::python;

const char* feroce_python_version(void) {
    return FEROCE_VERSION;
}

feroce_handle feroce_queue_create(void) {
    return answered(feroce_handle{0}, [&] {
        const auto queue = Queue::create();
        return queue ? Handles::instance().add(*queue) : feroce_handle{0};
    });
}

int feroce_queue_fd(feroce_handle queue) {
    const auto found = Handles::instance().find<Queue>(queue);
    return found ? found->fd() : -1;
}

feroce_handle feroce_queue_take(feroce_handle queue, int32_t milliseconds) {
    return answered(feroce_handle{0}, [&] {
        const auto found = Handles::instance().find<Queue>(queue);
        return found ? found->take(milliseconds) : feroce_handle{0};
    });
}

int feroce_call_result(feroce_handle handle, feroce_result* out) {
    return answered(ENOMEM, [&] {
        const auto call = Handles::instance().find<Call>(handle);
        if (!call) return EBADF;
        const Outcome* outcome = call->outcome();
        if (outcome == nullptr) return EAGAIN;
        *out = {};
        out->code = outcome->code;
        out->value = outcome->value;
        out->made = call->made();
        out->data = {outcome->data.data(), outcome->data.size()};
        out->why = outcome->why.c_str();
        return 0;
    });
}

int feroce_call_cancel(feroce_handle handle) {
    const auto call = Handles::instance().find<Call>(handle);
    return call && call->cancel() ? 1 : 0;
}

void feroce_release(feroce_handle handle) {
    Handles::instance().remove(handle);
}

feroce_handle feroce_close(feroce_handle queue, int64_t timeout, feroce_handle what) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<Closable>(queue, timeout, what,
                                 [](std::shared_ptr<Call> call, Closable& object) {
                                     return object.close(std::move(call));
                                 });
    });
}

void feroce_shutdown(void) {
    const auto home = Handles::instance().take_home();
    Handles::instance().remove_all().clear();  // While their threads run.
    if (home) home->end();
}
