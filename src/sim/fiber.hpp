// Fiber: a thread of a simulated machine: a stack of its own, run by resume() until it suspends or
// ends. One thread of the kernel runs them all, one at a time, and nobody but the caller of
// resume() decides when, so a run of many is repeatable. Resumes nest. What a fiber holds while it
// is suspended, locks above all, is held against the others.
#pragma once

#include <functional>
#include <memory>

namespace feroce::sim {

class Fiber {
public:
    explicit Fiber(std::function<void()> body);
    ~Fiber();  // It has ended, or was never resumed.
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    void resume();
    bool ended() const { return ended_; }

    static Fiber* current();  // Null outside of all.
    static void suspend();    // The current one, until its next resume().

private:
    struct Switch;  // Contexts, stack, and what sanitizers must know.

    static void enter();
    void body();
    void leave(bool for_good);

    std::function<void()> body_;
    std::unique_ptr<Switch> switch_;
    Fiber* outer_ = nullptr;  // Who resumed us, while we run.
    bool started_ = false;
    bool ended_ = false;
};

}  // namespace feroce::sim
