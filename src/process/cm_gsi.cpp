#include "process/cm_gsi.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "base/shortage.hpp"

namespace feroce::process {

using transport::Attribute;
using transport::QpState;

CmGsi::CmGsi(Process& process, std::function<void()> ring)
    : process_(process),
      shard_(process.shard(0)),
      ring_(std::move(ring)),
      slot_(shard_.slot()),
      buffers_(std::size_t{kReceives} * kBufferBytes),
      queue_(kReceives + kSends, this, nullptr) {}

Result<std::unique_ptr<CmGsi>> CmGsi::open(Process& process, std::function<void()> ring) {
    std::unique_ptr<CmGsi> gsi(new CmGsi(process, std::move(ring)));
    if (Result<void> created = gsi->create(); !created) return created.error();
    return gsi;
}

CmGsi::~CmGsi() {
    if (qp_ != nullptr) {
        Shard::Session session(shard_);
        session.engine().destroy_qp(*qp_);
    }
    if (lkey_.raw != 0) (void)process_.memory().deregister_region(lkey_);
    if (pd_.raw != 0) (void)process_.memory().dealloc_pd(pd_);
}

Result<void> CmGsi::create() {
    const Result<PdId> pd = process_.memory().alloc_pd();
    TRY(pd);
    pd_ = *pd;
    const Result<mem::RegionKeys> keys = process_.memory().register_region(
        {.pd = pd_,
         .address = buffers_.data(),
         .length = buffers_.size(),
         .iova = reinterpret_cast<std::uintptr_t>(buffers_.data()),
         .access = mem::AccessSet(mem::Access::LocalWrite)});
    TRY(keys);
    lkey_ = keys->lkey;
    transport::QpInit init;
    init.type = transport::QpType::Ud;
    init.pd = pd_;
    init.send_cq = &queue_;
    init.receive_cq = &queue_;
    init.capabilities = {kSends, kReceives, 1, 1, wire::kMadSize};
    Shard::Session session(shard_);
    const Result<transport::QueuePair*> qp = session.engine().create_gsi_qp(init);
    TRY(qp);
    qp_ = *qp;
    return bring_up(session);
}

Result<void> CmGsi::bring_up(Shard::Session& session) {
    const auto bits = [](auto... a) {
        return transport::AttributeMask{(static_cast<std::uint32_t>(a) | ...)};
    };
    transport::QpAttributes wanted;
    wanted.qkey = wire::kGeneralServicesQkey;
    wanted.state = QpState::Init;
    TRY(session.engine().modify_qp(
        session.now(), *qp_, wanted,
        bits(Attribute::State, Attribute::PkeyIndex, Attribute::Port, Attribute::Qkey)));
    for (std::uint64_t i = 0; i < kReceives; ++i) post_receive(session, i);
    wanted.state = QpState::Rtr;
    TRY(session.engine().modify_qp(session.now(), *qp_, wanted, bits(Attribute::State)));
    wanted.state = QpState::Rts;
    TRY(session.engine().modify_qp(session.now(), *qp_, wanted,
                                   bits(Attribute::State, Attribute::SendPsn)));
    queue_.arm(device::CompletionQueue::Arm::Next);
    return {};
}

void CmGsi::post_receive(Shard::Session& session, std::uint64_t index) {
    const std::byte* buffer = buffers_.data() + index * kBufferBytes;
    const std::array<mem::Sge, 1> sges{
        mem::Sge{reinterpret_cast<std::uintptr_t>(buffer), kBufferBytes, lkey_}};
    const Result<void> posted =
        session.engine().post_receive(session.now(), *qp_, {.wr_id = index, .sges = sges});
    ASSERT(posted.has_value());  // A place is posted again only after it has completed.
}

void CmGsi::send(const std::vector<CmDatagram>& datagrams) {
    if (datagrams.empty()) return;
    Shard::Session session(shard_);
    for (const CmDatagram& d : datagrams) {
        const std::array<mem::Sge, 1> sges{
            mem::Sge{reinterpret_cast<std::uintptr_t>(d.mad.data()), wire::kMadSize, LKey{}}};
        transport::SendWr wr;
        wr.inlined = true;
        wr.sges = sges;
        wr.path.source = d.source;
        wr.path.destination = d.destination;
        wr.destination_qpn = kGeneralServicesQpn;
        wr.qkey = wire::kGeneralServicesQkey;
        if (session.engine().post_send(session.now(), *qp_, wr)) continue;
        session.engine().run(session.now());  // Full: make room once, then it is the network's
        (void)session.engine().post_send(session.now(), *qp_, wr);  // loss, and is sent again.
    }
}

void CmGsi::drain(std::vector<CmDatagram>& out) {
    Shard::Session session(shard_);
    // Armed before the last look: what comes later rings.
    queue_.arm(device::CompletionQueue::Arm::Next);
    std::array<transport::Completion, 32> batch;
    while (const std::uint32_t count = queue_.poll(batch)) {
        for (const transport::Completion& c : std::span(batch).first(count)) {
            // Flushed: the queue pair is in ERR, where a receive would come back at once.
            if (c.opcode != transport::WcOpcode::Receive ||
                c.status == transport::WcStatus::FlushError)
                continue;
            const bool whole = c.byte_length == kBufferBytes;
            // Without memory it is lost, as by the network; its receive is posted again.
            if (c.status == transport::WcStatus::Success && whole)
                (void)with_memory([&] { out.push_back(read(c)); });
            post_receive(session, c.wr_id);
        }
    }
}

CmDatagram CmGsi::read(const transport::Completion& completion) const {
    const ByteView buffer =
        ByteView(buffers_).subspan(completion.wr_id * kBufferBytes, kBufferBytes);
    const transport::GrhAddresses from = transport::read_grh(buffer.first<transport::kGrhBytes>());
    CmDatagram d;
    d.source = from.source;
    d.destination = from.destination;
    const ByteView mad = buffer.last(wire::kMadSize);
    std::copy(mad.begin(), mad.end(), d.mad.begin());
    return d;
}

}  // namespace feroce::process
