// Rollback: undoes a step unless those after it have succeeded too; one of them may fail, or find
// no memory, which is told by an exception. The undoing must not fail.
#pragma once

#include <utility>

namespace feroce {

template <class Undo>
class [[nodiscard]] Rollback {
public:
    explicit Rollback(Undo undo) : undo_(std::move(undo)) {}
    ~Rollback() {
        if (armed_) undo_();
    }
    Rollback(const Rollback&) = delete;
    Rollback& operator=(const Rollback&) = delete;

    void keep() { armed_ = false; }  // All steps were taken.

private:
    Undo undo_;
    bool armed_ = true;
};

}  // namespace feroce
