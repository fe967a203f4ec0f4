#include "python/handles.hpp"

#include <pthread.h>

#include <utility>

#include "python/home.hpp"

namespace feroce::python {

// Holds the table while a child is made, so that the child finds it whole.
struct Forking {
    static void before() { Handles::instance().mutex_.lock(); }
    static void in_parent() { Handles::instance().mutex_.unlock(); }
    static void in_child() {
        Handles::instance().lose_all();
        Handles::instance().mutex_.unlock();
    }
};

Handles& Handles::instance() {
    static Handles* const only = [] {
        std::unique_ptr<Handles> made(new Handles);
        ::pthread_atfork(Forking::before, Forking::in_parent, Forking::in_child);
        return made.release();
    }();
    return *only;
}

void Handles::lose_all() {
    // Not destroyed: that would wait for threads that this process does not have.
    static_cast<void>(std::make_unique<decltype(objects_)>(std::exchange(objects_, {})).release());
    static_cast<void>(
        std::make_unique<std::shared_ptr<Home>>(std::exchange(home_, nullptr)).release());
}

std::uint64_t Handles::add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
}

std::shared_ptr<Object> Handles::find(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
}

std::shared_ptr<Object> Handles::remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    auto taken = objects_.extract(handle);
    return taken ? std::move(taken.mapped()) : nullptr;
}

Handles::Objects Handles::remove_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(objects_, {});
}

std::shared_ptr<Home> Handles::home() {
    const std::lock_guard lock(mutex_);
    if (!home_ && !over_) home_ = Home::start();
    return home_;
}

std::shared_ptr<Home> Handles::take_home() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    return std::exchange(home_, nullptr);
}

}  // namespace feroce::python
