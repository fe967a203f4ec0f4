#include "rsocket/ud_link.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace feroce::rsockets {
namespace {

constexpr std::size_t kRouteBytes = 40;  // A global route header is in front of what arrives.
constexpr std::size_t kArrivalBytes = kRouteBytes + kMostDatagram;
constexpr std::uint64_t kReceived = std::uint64_t{1} << 32;  // In a tag: of a receive.
constexpr std::uint32_t kMostPlaces = 8192;
constexpr std::uint8_t kHopLimit = 64;

std::uint32_t places_of(std::uint32_t queue, std::size_t buffer) {
    const std::size_t wanted = std::max<std::size_t>(queue, buffer / kMostDatagram);
    return static_cast<std::uint32_t>(std::min<std::size_t>(wanted, kMostPlaces));
}

}  // namespace

Result<std::unique_ptr<UdLink>> UdLink::create(const Name& local, const Options& options) {
    std::unique_ptr<UdLink> link(new UdLink(local));
    link->sends_ = places_of(options.send_queue, options.send_buffer);
    link->receives_ = places_of(options.receive_queue, options.receive_buffer);
    Result<void> done = link->open_device();
    if (done) done = link->find_gid();
    if (done) done = link->make_queues();
    if (done) done = link->make_memory();
    if (!done) return done.error();
    return link;
}

UdLink::~UdLink() {
    if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
    if (cq_ != nullptr) {
        ibv_ack_cq_events(cq_, notices_);
        ibv_destroy_cq(cq_);
    }
    if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
    if (region_ != nullptr) ibv_dereg_mr(region_);
    if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
    if (id_ != nullptr) rdma_destroy_id(id_);
}

Result<void> UdLink::open_device() {
    if (rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_UDP) != 0) {
        id_ = nullptr;
        return Error{errno, "no rdma_cm id"};
    }
    Name any_port = local_;
    any_port.port = 0;
    sockaddr_storage address = any_port.as(local_.is_v4() ? AF_INET : AF_INET6);
    if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) != 0)
        return Error{errno, "the address cannot be bound"};
    if (id_->verbs == nullptr) return Error{ENODEV, "no RDMA device has this address"};
    ibv_port_attr port{};
    if (const int code = ibv_query_port(id_->verbs, id_->port_num, &port); code != 0)
        return Error{code, "the port tells nothing"};
    most_ = std::min<std::size_t>(kMostDatagram, std::size_t{128} << port.active_mtu);
    return {};
}

// The entry of the port's table that sends from the local address.
Result<void> UdLink::find_gid() {
    std::array<ibv_gid_entry, 256> table{};
    const ssize_t count = ibv_query_gid_table(id_->verbs, table.data(), table.size(), 0);
    for (const ibv_gid_entry& entry :
         std::span(table).first(static_cast<std::size_t>(std::max<ssize_t>(count, 0)))) {
        if (entry.port_num != id_->port_num || entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
        if (std::memcmp(entry.gid.raw, local_.address.data(), local_.address.size()) != 0) continue;
        gid_index_ = static_cast<std::uint8_t>(entry.gid_index);
        return {};
    }
    return Error{ENODEV, "no RDMA device has this address as a GID"};
}

Result<void> UdLink::make_queues() {
    channel_ = ibv_create_comp_channel(id_->verbs);
    if (channel_ == nullptr) return Error{errno, "no completion channel"};
    if (::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return Error{errno, "channel cannot poll"};
    cq_ = ibv_create_cq(id_->verbs, static_cast<int>(sends_ + receives_), nullptr, channel_, 0);
    if (cq_ == nullptr) return Error{errno, "no completion queue"};
    ibv_qp_init_attr attributes{};
    attributes.send_cq = cq_;
    attributes.recv_cq = cq_;
    attributes.qp_type = IBV_QPT_UD;
    attributes.sq_sig_all = 1;
    attributes.cap.max_send_wr = sends_;
    attributes.cap.max_recv_wr = receives_;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    if (rdma_create_qp(id_, nullptr, &attributes) != 0) return Error{errno, "no queue pair"};
    return {};
}

Result<void> UdLink::make_memory() {
    const std::size_t size = receives_ * kArrivalBytes + sends_ * kMostDatagram;
    void* memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{ENOMEM, "no memory for datagrams"};
    memory_ = {static_cast<std::byte*>(memory), size};
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;  // The macro mixes enums.
    region_ = ibv_reg_mr(id_->pd, memory, size, kAccess);
    if (region_ == nullptr) return Error{errno, "the memory of datagrams cannot be registered"};
    free_.resize(sends_);
    for (std::uint32_t place = 0; place < sends_; ++place) free_[place] = place;
    for (std::uint32_t place = 0; place < receives_; ++place) give_back(place);
    return broken_ ? Result<void>(Error{EIO, "receives cannot be posted"}) : Result<void>{};
}

std::byte* UdLink::receive_place(std::uint32_t place) const {
    return memory_.data() + place * kArrivalBytes;
}

std::byte* UdLink::send_place(std::uint32_t place) const {
    return memory_.data() + receives_ * kArrivalBytes + place * kMostDatagram;
}

Result<AddressHandle> UdLink::reach(const Name& peer) {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = id_->port_num;
    attributes.grh.sgid_index = gid_index_;
    attributes.grh.hop_limit = kHopLimit;
    std::memcpy(attributes.grh.dgid.raw, peer.address.data(), peer.address.size());
    AddressHandle handle(ibv_create_ah(id_->pd, &attributes), ibv_destroy_ah);
    if (handle == nullptr) return Error{errno, "the peer's address cannot be reached"};
    return handle;
}

Result<void> UdLink::send(ibv_ah& handle, std::uint32_t queue_pair, ByteView header, Places from) {
    const std::uint32_t place = free_.back();
    std::byte* to = std::copy(header.begin(), header.end(), send_place(place));
    for (const ByteView bytes : from) to = std::copy(bytes.begin(), bytes.end(), to);
    ibv_sge piece{};
    piece.addr = reinterpret_cast<std::uintptr_t>(send_place(place));
    piece.length = static_cast<std::uint32_t>(to - send_place(place));
    piece.lkey = region_->lkey;
    ibv_send_wr wr{};
    wr.wr_id = place;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = &handle;
    wr.wr.ud.remote_qpn = queue_pair;
    wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
    ibv_send_wr* bad = nullptr;
    if (const int code = ibv_post_send(id_->qp, &wr, &bad); code != 0)
        return Error{code, "the datagram cannot be posted"};
    free_.pop_back();
    return {};
}

std::size_t UdLink::take(std::span<Arrival> out, bool& more) {
    std::array<ibv_wc, 16> completions;
    const std::size_t most = std::min(completions.size(), out.size());
    const int count = ibv_poll_cq(cq_, static_cast<int>(most), completions.data());
    if (count < 0) broken_ = true;
    more = count == static_cast<int>(most);
    std::size_t arrived = 0;
    for (const ibv_wc& done :
         std::span(completions).first(static_cast<std::size_t>(std::max(count, 0)))) {
        const auto place = static_cast<std::uint32_t>(done.wr_id);
        if (done.status != IBV_WC_SUCCESS) broken_ = true;
        if ((done.wr_id & kReceived) == 0) {
            free_.push_back(place);
        } else if (done.status == IBV_WC_SUCCESS && done.byte_len >= kRouteBytes) {
            out[arrived++] = {{receive_place(place) + kRouteBytes, done.byte_len - kRouteBytes},
                              place,
                              done.src_qp};
        }
    }
    return arrived;
}

void UdLink::give_back(std::uint32_t place) {
    ibv_sge piece{};
    piece.addr = reinterpret_cast<std::uintptr_t>(receive_place(place));
    piece.length = kArrivalBytes;
    piece.lkey = region_->lkey;
    ibv_recv_wr wr{};
    wr.wr_id = kReceived | place;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(id_->qp, &wr, &bad) != 0) broken_ = true;
}

void UdLink::arm() {
    if (ibv_req_notify_cq(cq_, 0) != 0) broken_ = true;
}

void UdLink::take_notice() {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_, &which, &context) == 0) ++notices_;
}

}  // namespace feroce::rsockets
