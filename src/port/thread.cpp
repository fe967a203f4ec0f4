#include "port/thread.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/annotate.hpp"

namespace feroce::port {
namespace {

// Our thread works in short bursts and others wait for it, some of them spinning on memory. Since
// Linux 6.12 a thread may ask for shorter turns that come sooner; before, nothing happens.
void ask_for_short_slices() {
    struct {
        std::uint32_t size, policy;
        std::uint64_t flags;
        std::int32_t nice;
        std::uint32_t priority;
        std::uint64_t runtime_ns, deadline_ns, period_ns;
    } request{};
    request.size = sizeof request;
    request.policy = SCHED_OTHER;
    request.nice = ::getpriority(PRIO_PROCESS, 0);
    request.runtime_ns = 100'000;
    ::syscall(SYS_sched_setattr, 0, &request, 0);
}

}  // namespace

Thread::~Thread() {
    if (started_) ::pthread_join(thread_, nullptr);
}

int Thread::start() {
    sigset_t ours, theirs;
    ::sigfillset(&ours);
    ::sigdelset(&ours, SIGSEGV);
    ::sigdelset(&ours, SIGBUS);
    ::pthread_sigmask(SIG_SETMASK, &ours, &theirs);
    const int error = ::pthread_create(&thread_, nullptr, &Thread::enter, this);
    ::pthread_sigmask(SIG_SETMASK, &theirs, nullptr);
    started_ = error == 0;
    return error;
}

void* Thread::enter(void* self) {
    ::pthread_setname_np(::pthread_self(), "feroce");
    ask_for_short_slices();
    const annotate::OwnCalls all;
    static_cast<Thread*>(self)->body_();
    return nullptr;
}

}  // namespace feroce::port
