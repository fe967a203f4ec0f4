// PortGroup: how the processes of one user share UDP port 4791 without a daemon. The port is a
// group of SO_REUSEPORT sockets, one a slot, whose fds every member holds; a filter in the kernel
// steers a datagram to the socket of the slot in its destination QPN. A slot is owned by a POSIX
// lock on a byte of a memory file, so it is free again when its owner dies, whatever the way. The
// first process founds the group; every member hands the fds to newcomers over a shared listening
// socket; the last death removes everything. Slot 0 belongs to nobody: connection requests land
// there.
//
// Never connect() a group socket (it would reshuffle the group), never give one to another user
// (who could divert the traffic), never dup or close the lock file while a slot is held.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "port/fd.hpp"

namespace feroce::port {

class PortGroup {
public:
    static constexpr std::uint32_t kSlots = 64;

    // `port` is 4791 but in tests.
    static Result<std::unique_ptr<PortGroup>> enter(std::uint16_t port);
    ~PortGroup();

    // A slot of our own, drained of what was sent to its last owner. Not thread-safe.
    std::optional<std::uint8_t> claim();
    void release(std::uint8_t slot);

    int socket_v4(std::uint8_t slot) const { return v4_[slot].get(); }
    int socket_v6(std::uint8_t slot) const { return v6_[slot].get(); }  // -1 without IPv6.
    bool has_v6() const { return v6_[0].valid(); }

    // Readable when somebody wants to join; any member may serve(), which never blocks.
    int listener() const { return listener_.get(); }
    void serve() const;

    void abandon();  // Closes every fd, in a forked child.

private:
    PortGroup() = default;
    enum class Step { Done, Retry };
    Result<Step> try_enter(std::uint16_t port);
    Result<Step> join(int connection);
    Result<Step> found(std::uint16_t port, Fd listener);
    bool adopt(const int* fds, std::size_t count, bool with_v6);

    Fd listener_;
    Fd locks_;  // Exactly one fd of this file in the process: closing any would drop all locks.
    std::array<Fd, kSlots> v4_;
    std::array<Fd, kSlots> v6_;
    std::uint64_t claimed_ =
        0;  // Bit per slot that this process owns; its locks do not exclude it.
};

}  // namespace feroce::port
