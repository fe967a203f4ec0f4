// The system calls of the data path, without the C library's wrappers: those are cancellation
// points, and a program's thread that is cancelled in ibv_poll_cq would take our lock with it. They
// also cost a process with threads some 50 ns a call.
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <span>

namespace feroce::port {

inline long receive_message(int fd, msghdr& message, int flags) {
    return ::syscall(SYS_recvmsg, fd, &message, flags);
}

inline int receive_messages(int fd, std::span<mmsghdr> messages) {
    return static_cast<int>(
        ::syscall(SYS_recvmmsg, fd, messages.data(), messages.size(), MSG_DONTWAIT, nullptr));
}

inline long send_message(int fd, const msghdr& message, int flags) {
    return ::syscall(SYS_sendmsg, fd, &message, flags);
}

// A message of one piece without control messages, by the cheapest call there is for it.
inline long send_plain(int fd, const msghdr& message, int flags) {
    return ::syscall(SYS_sendto, fd, message.msg_iov->iov_base, message.msg_iov->iov_len, flags,
                     message.msg_name, message.msg_namelen);
}

inline int send_messages(int fd, std::span<mmsghdr> messages) {
    return static_cast<int>(
        ::syscall(SYS_sendmmsg, fd, messages.data(), messages.size(), MSG_DONTWAIT));
}

inline bool set_option(int fd, int level, int name, int value) {
    return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// An eventfd counts one more.
inline void ring(int eventfd) {
    const std::uint64_t one = 1;
    ::syscall(SYS_write, eventfd, &one, sizeof one);
}

}  // namespace feroce::port
