#include "port/request_receiver.hpp"

#include <sys/epoll.h>

#include "port/epoll_calls.hpp"
#include "port/event_set.hpp"

namespace feroce::port {
namespace {

bool watch(int set, int fd) {
    return fd < 0 || add_to_set(set, fd, EPOLLIN, 0);
}

}  // namespace

RequestReceiver::RequestReceiver(const PortGroup& group, Capture* capture)
    : v4_(group.socket_v4(0), capture),
      v6_(group.socket_v6(0), capture),
      set_(kernel_epoll_create()) {
    if (!watch(set_.get(), group.socket_v4(0)) || !watch(set_.get(), group.socket_v6(0)))
        set_.reset();
}

bool RequestReceiver::poll(Instant now, device::Engine& engine) {
    const bool v4 = v4_.poll(now, engine);
    return v6_.poll(now, engine) || v4;
}

}  // namespace feroce::port
