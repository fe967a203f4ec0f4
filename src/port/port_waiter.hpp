// PortWaiter: where the driver's thread sleeps: until packets arrive (while armed), somebody rings,
// a process wants to share the port, or addresses and links have changed.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.hpp"
#include "port/fd.hpp"

namespace feroce::port {

class PortWaiter {
public:
    bool open();
    bool add_arrivals(int fd);  // A socket that packets come by; -1 is none.
    void remove_arrivals(int fd);
    bool add_rare(int fd);      // The same, but wakes whether armed or not; -1 is none.
    bool add_listener(int fd);  // The group's; shared by its members.

    // See device::HostPort.
    void arm() { set_armed(true); }
    void disarm() { set_armed(false); }
    struct Woken {
        bool arrived = false;
        bool rare = false;
        bool newcomer = false;
    };
    Woken wait(Instant until);
    void wake();
    bool interfaces_changed();

private:
    void set_armed(bool armed);

    Fd arrivals_;           // An epoll set of the sockets, so that arming is one system call.
    Fd waiting_;            // The epoll set of arrivals_, doorbell_, changes_ and the listener.
    Fd doorbell_;           // eventfd behind wake().
    Fd changes_;            // Netlink: the news of addresses and links.
    bool changed_ = false;  // The waiting thread's own.
    std::atomic<bool> rung_{false};  // A wake() not yet seen; saves needless writes.
};

}  // namespace feroce::port
