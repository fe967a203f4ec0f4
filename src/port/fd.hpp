// Fd: owns one file descriptor.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

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
        // By syscall(): no cancellation point, which a destructor must not be.
        if (raw_ >= 0) ::syscall(SYS_close, raw_);
        raw_ = -1;
    }

private:
    int raw_ = -1;
};

}  // namespace feroce::port
