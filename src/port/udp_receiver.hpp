// UdpReceiver: takes datagrams off one socket, many a system call, and hands them to the engine
// packet by packet.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/time.hpp"
#include "device/engine.hpp"
#include "port/capture.hpp"

namespace feroce::port {

class UdpReceiver {
public:
    UdpReceiver(int fd, Capture* capture);  // -1: never receives anything. No capture: null.

    // Whether datagrams say which of our addresses they were sent to, as at first they do: some
    // 75 ns each. A capture needs it always.
    void tell_destinations(bool told);
    bool poll(Instant now, device::Engine& engine);  // False if nothing had arrived.
    // For a relay: what has arrived as the kernel merged it, with the size of its segments, 0 if it
    // is one packet.
    using Merged = std::function<void(const device::Datagram&, std::size_t segment_size)>;
    void poll_merged(const Merged& take);
    std::uint64_t overflows() const { return overflows_; }

private:
    static constexpr std::size_t kBatch = 8;
    static constexpr std::size_t kDatagramMax = 65536;
    static constexpr unsigned kSmall = 512;  // Larger ones are rarely alone.
    // So many looks in a row, each of which found one, are no exchange of single packets: there the
    // other end must answer first.
    static constexpr unsigned kQueueShows = 4;
    static constexpr std::size_t kControlMax = 256;

    struct alignas(cmsghdr) Control {
        char bytes[kControlMax];
    };

    struct Ancillary {
        device::Datagram datagram;     // Addresses and traffic class; the bytes come later.
        std::size_t segment_size = 0;  // 0: one packet.
    };

    int receive();  // How many of headers_ it has filled; -1 for none.
    void prepare(std::size_t i);
    Ancillary ancillary(std::size_t i);
    ByteView bytes_of(std::size_t i) const;
    void note_overflows(std::uint32_t count);
    void deliver(Instant now, device::Engine& engine, std::size_t i);

    int fd_;
    Capture* capture_;
    std::unique_ptr<std::byte[]> buffers_;
    std::array<mmsghdr, kBatch> headers_{};
    std::array<iovec, kBatch> vecs_{};
    std::array<sockaddr_storage, kBatch> sources_{};
    std::array<Control, kBatch> controls_{};
    bool crowded_ = false;             // Several packets may be waiting: all are asked for.
    unsigned found_in_a_row_ = 0;      // Looks.
    std::uint32_t overflow_mark_ = 0;  // The socket counts from its creation, before our claim.
    bool overflow_known_ = false;
    std::uint64_t overflows_ = 0;
};

}  // namespace feroce::port
