// What lint does around calls on objects and lists that threads may share (lint/turn.hpp).
#pragma once

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
        thread_ = lint_thread();
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
    lint::Thread thread_ = 0;
};

// If two threads post this list: takes a while, and tells whether the list changes meanwhile. To be
// called before the device takes the list: from then on the program may have completions, and use
// its requests for something else.
template <class Wr>
void watch_list(Lint& lint, const Wr* list, const char* call);

}  // namespace feroce::verbs
