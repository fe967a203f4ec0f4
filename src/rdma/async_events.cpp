#include "feroce/async_events.hpp"

#include <fcntl.h>

#include <utility>

#include "rdma/failure.hpp"

namespace feroce::rdma {

namespace {
constexpr unsigned kRounds = 1024;  // A busy loop looks this seldom: a look is a system call.
}

class AsyncEvents::Watch final : public Source {
public:
    Watch(Loop& loop, ibv_context* device, Handler handler)
        : loop_(loop), device_(device), handler_(std::move(handler)) {
        loop_.attach(*this);
    }
    ~Watch() { loop_.detach(*this); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    bool poll() override {
        if (!look_ && ++rounds_ % kRounds != 0) return false;
        look_ = false;
        ibv_async_event event{};
        if (::ibv_get_async_event(device_, &event) != 0) return false;
        look_ = true;  // There may be more.
        ::ibv_ack_async_event(&event);
        handler_(event);
        return true;
    }
    void arm() override { look_ = true; }
    int fd() const override { return device_->async_fd; }
    void take_events() override { look_ = true; }

private:
    Loop& loop_;
    ibv_context* device_;
    Handler handler_;
    bool look_ = true;
    unsigned rounds_ = 0;
};

void AsyncEvents::End::operator()(Watch* watch) const {
    delete watch;
}

Result<AsyncEvents> AsyncEvents::watch(Loop& loop, ibv_context* device, Handler handler) {
    const int flags = ::fcntl(device->async_fd, F_GETFL);
    if (flags < 0 || ::fcntl(device->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return failure("the device's events cannot be watched");
    return AsyncEvents(new Watch(loop, device, std::move(handler)));
}

}  // namespace feroce::rdma
