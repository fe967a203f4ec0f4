#include "feroce/suspension.hpp"

#include <algorithm>
#include <cerrno>

#include "feroce/loop.hpp"
#include "feroce/signal.hpp"

namespace feroce::rdma {

void Timer::arm(Instant at) {
    cancel();
    if (at != kNever) loop_.timers_.insert(*this, at);
}

void Timer::cancel() {
    if (armed()) loop_.timers_.remove(*this);
}

Message::~Message() {
    if (posted_.load(std::memory_order_acquire)) loop_.withdraw(*this);
}

void Message::post() {
    if (!posted_.exchange(true, std::memory_order_acq_rel)) loop_.push(*this);
}

void Deferred::schedule() {
    if (!linked()) loop_.deferred_.push_back(*this);
}

Suspension::Deadline::Deadline(Loop& loop, Suspension& of)
    : Timer(loop,
            [](Timer& timer) {
                Suspension& waiting = static_cast<Deadline&>(timer).owner;
                waiting.interrupt_(waiting, ETIMEDOUT);
            }),
      owner(of) {}

Suspension::Stop::Stop(Loop& loop, Suspension& of)
    : Message(loop,
              [](Message& message) {
                  Suspension& waiting = static_cast<Stop&>(message).owner;
                  waiting.interrupt_(waiting, ECANCELED);
              }),
      owner(of) {}

Suspension::Suspension(Loop& loop, void (*interrupt)(Suspension&, int))
    : loop_(loop), interrupt_(interrupt), deadline_(loop, *this), stop_(loop, *this) {}

Suspension::Suspension(Loop& loop)
    : Suspension(loop, [](Suspension& self, int code) {
          if (self.done()) return;
          self.code_ = code;
          self.finish();
      }) {}

Instant Suspension::deadline_within(const Limits* outer) const {
    if (outer == nullptr || shielded_) return own_.deadline();
    return std::min(own_.deadline(), outer->deadline());
}

int Suspension::begin(std::coroutine_handle<> waiting, const Limits* outer) {
    waiting_ = waiting;
    const Instant deadline = deadline_within(outer);
    const std::stop_token* stop = &own_.stop();
    if (outer != nullptr && !shielded_) {
        if (stop->stop_possible())
            own_.add(outer->stop());
        else
            stop = &outer->stop();
    }
    if (stop->stop_requested()) return ECANCELED;
    if (deadline != kNever && deadline <= loop_.now()) return ETIMEDOUT;
    deadline_.arm(deadline);
    if (stop->stop_possible()) on_stop_.emplace(*stop, OnStop{&stop_});
    if (detail::at_suspension != nullptr) [[unlikely]]
        detail::at_suspension(*this);
    return 0;
}

void Suspension::settle() {
    deadline_.cancel();
    on_stop_.reset();  // A stop that was posted meanwhile is withdrawn when this ends.
    done_ = true;
}

void Suspension::finish() {
    settle();
    if (waiting_) loop_.make_ready(*this);
}

Instant Suspension::after(Duration time) const {
    return loop_.after(time);
}

void Suspension::drive() {
    while (!done_) loop_.poll_or_wait();
}

Signal::Wait::Wait(Signal& signal) : Limited(signal.loop_), signal_(signal) {}

bool Signal::Wait::start(std::coroutine_handle<> handle, const Limits* outer) {
    set_code(begin(handle, outer));
    if (code() != 0) return false;
    signal_.waiting_.push_back(*this);
    return true;
}

Result<> Signal::Wait::result() {
    if (code() == ETIMEDOUT) return Error(ETIMEDOUT, "what was waited for did not come in time");
    if (code() != 0) return Error(code(), "the program asked to stop waiting");
    return {};
}

Signal::Wait Signal::wait() {
    return Wait(*this);
}

bool Signal::notify_one() {
    Wait* first = waiting_.pop_front();
    if (first == nullptr) return false;
    first->finish();
    return true;
}

void Signal::notify_all() {
    while (notify_one()) continue;
}

}  // namespace feroce::rdma
