// PortWaiter: where the driver's thread sleeps: until packets arrive (while armed), somebody rings,
// a process wants to share the port, another one has ended, addresses and links have changed, or
// the network says that packets did not arrive.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/time.hpp"
#include "port/fd.hpp"

namespace feroce::port {

class PortGroup;

class PortWaiter {
public:
    bool open();
    bool add_arrivals(int fd);  // A socket that packets come by; -1 is none.
    void remove_arrivals(int fd);
    bool add_rare(int fd);      // The same, but wakes whether armed or not; -1 is none.
    bool add_listener(int fd);  // The group's; shared by its members.
    bool add_ends(int fd);      // Readable when another process has ended.

    // An epoll set of sockets whose errors end a wait: once, until they are looked at.
    int errors_set() const { return errors_.get(); }
    void watch_errors();

    // See host::HostPort.
    void arm();
    void disarm(bool for_long);
    struct Woken {
        bool arrived = false;
        bool rare = false;
        bool newcomer = false;
        bool ended = false;
        bool errors = false;
    };
    Woken wait(Instant until);
    void serve(PortGroup& group);  // A newcomer; by the waiting thread.
    void wake();
    bool interfaces_changed();

private:
    bool attach(int fd);
    bool attach_listener();
    void set_armed(bool armed);

    std::mutex mutex_;          // Guards sockets_ and attached_.
    std::vector<int> sockets_;  // Those packets come by.
    // Whether they are in arrivals_. A packet to a socket in an epoll set, armed or not, costs its
    // sender some 0.2 us: disarmed for long, they are in none.
    bool attached_ = false;
    Fd arrivals_;           // The epoll set of sockets_.
    Fd waiting_;            // The epoll set of arrivals_, doorbell_, errors_, changes_ and others.
    Fd doorbell_;           // eventfd behind wake().
    Fd errors_;             // The epoll set of sockets to send from.
    Fd changes_;            // Netlink: the news of addresses and links.
    bool changed_ = false;  // The waiting thread's own, as are the next two.
    int listener_ = -1;
    Instant listens_again_ = kNever;  // kNever: it is in waiting_.
    std::atomic<bool> rung_{false};   // A wake() not yet seen; saves needless writes.
};

}  // namespace feroce::port
