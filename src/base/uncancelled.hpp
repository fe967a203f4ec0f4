// Uncancelled: while one lives, a pthread_cancel() of this thread has to wait. Calls that take
// locks or make system calls start with one. Those of the data path, where it would cost too much,
// reach the kernel by syscall() instead, which is no cancellation point.
#pragma once

#include <pthread.h>

namespace feroce {

class Uncancelled {
public:
    Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace feroce
