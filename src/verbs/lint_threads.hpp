// What lint does around calls on objects and lists that threads may share (lint/turn.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "verbs/lint.hpp"

namespace feroce::verbs {

lint::Thread lint_thread();
// Makes a call longer, so that another one may meet it.
void linger();

// While one lives, the calling thread is within a call on an object that was promised to one thread
// at a time. `Object` is the number of a queue pair, or a completion queue.
template <class Object>
class LintTurn {
public:
    LintTurn(Lint& lint, Object object, bool promised, const char* call)
        : lint_(promised ? &lint : nullptr), object_(object) {
        if (lint_ == nullptr) return;
        bool slowly = false;
        lint_->tell([&](lint::Linter& linter, lint::Place place) {
            slowly = linter.enters(object_, thread_, call, place);
        });
        if (slowly) linger();
    }
    ~LintTurn() {
        if (lint_ != nullptr)
            lint_->tell_quickly([&](lint::Linter& l) { l.leaves(object_, thread_); });
    }
    LintTurn(const LintTurn&) = delete;
    LintTurn& operator=(const LintTurn&) = delete;

private:
    Lint* lint_;
    Object object_;
    lint::Thread thread_ = lint_thread();
};

// What a list of work requests says, as far as the device reads it in any request.
template <class Wr>
std::uint64_t print_of(const Wr* list, std::size_t count);

// Looks whether a list that two threads post changes while one of them does.
template <class Wr>
class ListWatch {
public:
    ListWatch(Lint& lint, const Wr* list, const char* call)
        : lint_(lint), list_(list), call_(call) {
        lint_.tell_quickly(
            [&](lint::Linter& linter) { watched_ = linter.shares(list_, lint_thread()); });
        if (!watched_) return;
        for (const Wr* wr = list_; wr != nullptr; wr = wr->next) ++count_;
        before_ = print_of(list_, count_);
        linger();
    }
    ~ListWatch() {
        if (!watched_ || print_of(list_, count_) == before_) return;
        lint_.tell([&](lint::Linter& linter, lint::Place place) {
            linter.list_changed(call_, list_, place);
        });
    }
    ListWatch(const ListWatch&) = delete;
    ListWatch& operator=(const ListWatch&) = delete;

private:
    Lint& lint_;
    const Wr* list_;
    const char* call_;
    bool watched_ = false;
    std::size_t count_ = 0;
    std::uint64_t before_ = 0;
};

}  // namespace feroce::verbs
