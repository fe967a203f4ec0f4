// The receiving ends of parcels (parcel.hpp): the engine gets them packet by packet.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.hpp"
#include "device/engine.hpp"
#include "port/capture.hpp"
#include "port/fd.hpp"
#include "port/fork_gate.hpp"
#include "port/parcel.hpp"
#include "port/ring_message.hpp"

namespace feroce::port {

// Where messages about rings go that come among parcels.
class RingMessageSink {
public:
    virtual void take(Instant now, device::Engine& engine, const RingMessage& message,
                      Fd attached) = 0;

protected:
    ~RingMessageSink() = default;
};

// What other members of the group hand to the owner of `slot`: rare, so one a system call.
class HandOverReceiver final : private ForkGate::Holder {
public:
    HandOverReceiver(const PortGroup& group, SlotNumber slot, Capture* capture);
    ~HandOverReceiver();

    int fd() const { return fd_.get(); }  // -1: none could be made.
    const sockaddr_un& name() const { return name_; }
    // False if nothing had arrived.
    bool poll(Instant now, device::Engine& engine, RingMessageSink& rings);

private:
    // Ends of ties may lie there, which a child would keep from ending.
    void abandon() override { fd_.reset(); }

    const PortGroup& group_;
    SlotNumber slot_;
    Capture* capture_;
    sockaddr_un name_{};
    Fd fd_;
    std::vector<std::byte> buffer_;
};

// What the relay sends to a guest: all it receives.
class RelayReceiver {
public:
    RelayReceiver(int fd, Capture* capture);  // -1: never receives anything.

    bool poll(Instant now, device::Engine& engine);  // False if nothing had arrived.
    bool ended() const { return ended_; }            // The relay is gone.
    void restart() { ended_ = false; }               // Behind the fd is a new connection.

private:
    static constexpr std::size_t kBatch = 8;

    int fd_;
    Capture* capture_;
    bool ended_ = false;
    std::unique_ptr<std::byte[]> buffers_;
    std::array<mmsghdr, kBatch> headers_{};
    std::array<iovec, kBatch> vecs_{};
};

}  // namespace feroce::port
