// Fd: owns one file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/uncancelled.hpp"

namespace feroce::port {

class Fd {
public:
    Fd() = default;
    explicit Fd(int raw) : raw_(raw) {}
    Fd(Fd&& other) noexcept : raw_(std::exchange(other.raw_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            raw_ = std::exchange(other.raw_, -1);
        }
        return *this;
    }
    Fd(const Fd&) = delete;
    Fd& operator=(const Fd&) = delete;
    ~Fd() { reset(); }

    int get() const { return raw_; }
    bool valid() const { return raw_ >= 0; }
    int release() { return std::exchange(raw_, -1); }  // Somebody else owns it from now on.
    void reset() {
        if (raw_ < 0) return;
        const Uncancelled call;  // A destructor must not be a cancellation point.
        ::close(std::exchange(raw_, -1));
    }

private:
    int raw_ = -1;
};

}  // namespace feroce::port
