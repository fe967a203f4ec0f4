#include "transfers_peer.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace gpu {
namespace {

constexpr unsigned char kBlank = 0xee;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Eight bytes at a time: a gigabyte of it must not take long.
void make_pattern(std::vector<unsigned char>& out, std::uint64_t size, unsigned seed) {
    out.resize(size + 8);
    std::uint64_t x = seed;
    for (std::uint64_t at = 0; at < size; at += 8) {
        x += 0x9e37'79b9'7f4a'7c15;
        std::uint64_t word = (x ^ (x >> 31)) * 0xbf58'476d'1ce4'e5b9;
        word ^= word >> 29;
        std::memcpy(&out[at], &word, 8);
    }
}

// Descriptors are of whole pages, of 2 MiB at the most.
std::uint64_t whole_pages(std::uint64_t bytes) {
    constexpr std::uint64_t kPage = 2 << 20;
    return (bytes + kPage - 1) / kPage * kPage;
}

ibv_context* open_first() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ibv_context* context = count > 0 ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    if (context == nullptr) fail("no RDMA device", "");
    return context;
}

}  // namespace

void fail(const char* what, const char* which) {
    std::fprintf(stderr, "%s %s\n", what, which);
    std::exit(1);
}

Peer::Peer(const Gpu& gpu, std::uint64_t bytes, int socket, bool dmabuf)
    : gpu_(gpu), socket_(socket), host_(whole_pages(bytes), kBlank) {
    bytes = host_.size();
    device_ = gpu.allocate(bytes);
    gpu_.store(device_, host_.data(), bytes);
    context_ = open_first();
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    host_mr_ = (ibv_reg_mr)(pd_, host_.data(), bytes, kAccess);
    device_mr_ = register_device(bytes, dmabuf);
    if (host_mr_ == nullptr) fail("host memory is refused", "");
    if (device_mr_ == nullptr) fail("device memory is refused:", std::strerror(errno));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 4, 4, 0};
    init.sq_sig_all = 1;
    qp_ = ibv_create_qp(pd_, &init);
    if (qp_ == nullptr) fail("no queue pair", "");
    connect();
}

// As NCCL does it: the descriptor is closed right after.
ibv_mr* Peer::register_device(std::uint64_t bytes, bool dmabuf) const {
    if (!dmabuf) return (ibv_reg_mr)(pd_, reinterpret_cast<void*>(device_), bytes, kAccess);
    const int fd = gpu_.export_buffer(device_, bytes);
    ibv_mr* const mr = ibv_reg_dmabuf_mr(pd_, 0, bytes, device_, fd, kAccess);
    ::close(fd);
    return mr;
}

Peer::~Peer() {
    if (ibv_destroy_qp(qp_) != 0 || ibv_dereg_mr(device_mr_) != 0 || ibv_dereg_mr(host_mr_) != 0 ||
        ibv_destroy_cq(cq_) != 0 || ibv_dealloc_pd(pd_) != 0 || ibv_close_device(context_) != 0)
        fail("something could not be destroyed", "");
}

void Peer::connect() {
    Place mine{};
    mine.qpn = qp_->qp_num;
    ibv_query_gid(context_, 1, 0, &mine.gid);
    mine.host = reinterpret_cast<std::uintptr_t>(host_.data());
    mine.device = device_;
    mine.host_key = host_mr_->rkey;
    mine.device_key = device_mr_->rkey;
    send_all(&mine, sizeof mine);
    receive_all(&other_, sizeof other_);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = kAccess;
    int bad = ibv_modify_qp(qp_, &a,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = other_.qpn;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.dgid = other_.gid;
    bad |= ibv_modify_qp(qp_, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 20;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    bad |= ibv_modify_qp(qp_, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (bad != 0) fail("the queue pairs do not connect", "");
}

void Peer::note(unsigned number, const char* what, std::uint64_t size) {
    number_ = number;
    what_ = what;
    size_ = size;
}

void Peer::wrong(const char* what, std::uint64_t where) const {
    std::fprintf(stderr, "case %u, %s of %llu bytes: %s at %llu\n", number_, what_,
                 static_cast<unsigned long long>(size_), what,
                 static_cast<unsigned long long>(where));
    std::exit(1);
}

void Peer::send_all(const void* from, std::size_t bytes) const {
    if (::write(socket_, from, bytes) != static_cast<ssize_t>(bytes)) fail("the peer is gone", "");
}

void Peer::receive_all(void* to, std::size_t bytes) const {
    for (std::size_t got = 0; got < bytes;) {
        const ssize_t more = ::read(socket_, static_cast<char*>(to) + got, bytes - got);
        if (more <= 0) fail("the peer is gone", "");
        got += static_cast<std::size_t>(more);
    }
}

void Peer::meet() {
    char byte = 0;
    send_all(&byte, 1);
    receive_all(&byte, 1);
}

bool Peer::agree(bool go, bool first) {
    char byte = go ? 1 : 0;
    first ? send_all(&byte, 1) : receive_all(&byte, 1);
    return byte != 0;
}

void Peer::fill(const std::vector<Piece>& list, unsigned seed) {
    make_pattern(pattern_, size_, seed);
    std::uint64_t done = 0;
    for (const Piece& piece : list) {
        if (piece.on_gpu)
            gpu_.store(device_ + piece.at, &pattern_[done], piece.length);
        else
            std::memcpy(&host_[piece.at], &pattern_[done], piece.length);
        done += piece.length;
    }
}

void Peer::erase(const std::vector<Piece>& list) {
    const std::uint64_t first = list.front().at - kMargin;
    const std::uint64_t bytes = list.back().at + list.back().length + kMargin - first;
    std::memset(&host_[first], kBlank, bytes);
    gpu_.store(device_ + first, &host_[first], bytes);
}

void Peer::look(const Piece& piece, std::uint64_t before, std::uint64_t behind) {
    const std::uint64_t bytes = before + piece.length + behind;
    seen_.resize(bytes);
    if (piece.on_gpu)
        gpu_.load(seen_.data(), device_ + piece.at - before, bytes);
    else
        std::memcpy(seen_.data(), &host_[piece.at - before], bytes);
}

// The memory beside a piece is blank in its own kind: neighbours may lie in the other one.
void Peer::verify(const std::vector<Piece>& list, unsigned seed) {
    make_pattern(pattern_, size_, seed);
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        const Piece& piece = list[i];
        const bool alone = list.size() == 1;
        const std::uint64_t before = alone ? kMargin : 0;
        const std::uint64_t behind = alone ? kMargin : 0;
        look(piece, before, behind);
        if (std::memcmp(&seen_[before], &pattern_[done], piece.length) != 0) {
            std::uint64_t at = 0;
            while (seen_[before + at] == pattern_[done + at]) ++at;
            wrong("a wrong byte", done + at);
        }
        for (std::uint64_t at = 0; at < before + behind; ++at)
            if (seen_[at < before ? at : piece.length + at] != kBlank)
                wrong("a changed neighbour", at);
        done += piece.length;
    }
}

std::vector<ibv_sge> Peer::entries(const std::vector<Piece>& list) const {
    std::vector<ibv_sge> out;
    for (const Piece& piece : list) {
        const std::uint64_t base =
            piece.on_gpu ? device_ : reinterpret_cast<std::uintptr_t>(host_.data());
        out.push_back({base + piece.at, static_cast<std::uint32_t>(piece.length),
                       piece.on_gpu ? device_mr_->lkey : host_mr_->lkey});
    }
    return out;
}

void Peer::post(ibv_wr_opcode code, const std::vector<Piece>& list, const Piece& target) {
    std::vector<ibv_sge> sges = entries(list);
    ibv_send_wr wr{};
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = code;
    wr.imm_data = 0x12345678;
    wr.wr.rdma.remote_addr = (target.on_gpu ? other_.device : other_.host) + target.at;
    wr.wr.rdma.rkey = target.on_gpu ? other_.device_key : other_.host_key;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, &wr, &bad) != 0) wrong("a refused request", 0);
}

void Peer::post_receive(const std::vector<Piece>& list) {
    std::vector<ibv_sge> sges = entries(list);
    ibv_recv_wr wr{};
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) wrong("a refused receive", 0);
}

void Peer::expect_completion(const char* what) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    ibv_wc wc{};
    int got = 0;
    while ((got = ibv_poll_cq(cq_, 1, &wc)) == 0)
        if (std::chrono::steady_clock::now() > give_up) wrong("no completion in two minutes", 0);
    if (got < 0 || wc.status != IBV_WC_SUCCESS) {
        std::fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
        wrong("a failed completion", 0);
    }
}

}  // namespace gpu
