// Thread: one of ours beside the program's own. Signals are the program's: its handlers must not
// run on our stack, so all are blocked but those by which the memory guard learns of a fault.
#pragma once

#include <pthread.h>

#include <functional>
#include <utility>

#include "host/host.hpp"

namespace feroce::port {

class Thread final : public host::Task {
public:
    explicit Thread(std::function<void()> body) : body_(std::move(body)) {}
    ~Thread() override;

    int start();  // An errno, or 0.

private:
    static void* enter(void* self);

    std::function<void()> body_;
    pthread_t thread_{};
    bool started_ = false;
};

}  // namespace feroce::port
