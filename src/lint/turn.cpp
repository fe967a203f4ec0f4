#include "lint/turn.hpp"

namespace feroce::lint {

Turn::Entry Turn::enter(Thread thread) {
    if (inside_ != 0 && inside_ != thread) return Entry::Crowded;
    several_ = several_ || (last_ != 0 && last_ != thread);
    inside_ = last_ = thread;
    if (!several_ || long_calls_ >= kLongCallsMax) return Entry::Free;
    ++long_calls_;
    return Entry::Long;
}

void Turn::leave(Thread thread) {
    if (inside_ == thread) inside_ = 0;
}

bool SharedLists::posted(Handle list, Thread thread) {
    if (lists_.size() >= kListsMax && !lists_.contains(list)) lists_.clear();
    List& known = lists_[list];
    known.several = known.several || (known.last != 0 && known.last != thread);
    known.last = thread;
    if (!known.several || long_calls_ >= kLongCallsMax) return false;
    ++long_calls_;
    return true;
}

}  // namespace feroce::lint
