// CmGsi: how the connection manager's datagrams travel: the general services queue pair (QPN 1) of
// one shard. Arrivals wait in its completion queue until drain(); the listener only tells of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/completion_queue.hpp"
#include "host/rendezvous.hpp"
#include "process/process.hpp"
#include "transport/ud/grh.hpp"
#include "wire/mad.hpp"

namespace feroce::process {

using host::CmDatagram;

class CmGsi final : device::CompletionListener {
public:
    // `ring` is called under the shard's lock when something has arrived after a drain() that
    // nobody is about to fetch (Shard::note_mail).
    static Result<std::unique_ptr<CmGsi>> open(Process& process, std::function<void()> ring);
    ~CmGsi() override;

    SlotNumber slot() const { return slot_; }
    void send(const std::vector<CmDatagram>& datagrams);
    void drain(std::vector<CmDatagram>& out);  // Appends what has arrived.

private:
    static constexpr std::uint32_t kReceives = 1024;
    static constexpr std::uint32_t kSends = 256;
    static constexpr std::uint32_t kBufferBytes = transport::kGrhBytes + wire::kMadSize;

    CmGsi(Process& process, std::function<void()> ring);
    Result<void> create();
    Result<void> bring_up(Shard::Session& session);
    void post_receive(Shard::Session& session, std::uint64_t index);
    CmDatagram read(const transport::Completion& completion) const;
    void on_completion_event(device::CompletionQueue&) override {
        if (shard_.note_mail()) ring_();
    }
    void on_overflow(device::CompletionQueue&) override {}  // As many receives as places.

    Process& process_;
    Shard& shard_;
    std::function<void()> ring_;
    SlotNumber slot_;
    std::vector<std::byte> buffers_;
    PdId pd_{};
    LKey lkey_{};
    device::CompletionQueue queue_;
    transport::QueuePair* qp_ = nullptr;
};

}  // namespace feroce::process
