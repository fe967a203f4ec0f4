// GPU memory in the work requests of unreliable connections and datagrams, with late copies.
#include "fake_driver.hpp"
#include "verbs/test_pair.hpp"

namespace feroce::gpu_test::unreliable_test {
namespace {

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kHeader = 40;  // Before a datagram.

class UnreliableTest : public FakeDriverTest {
protected:
    void open(ibv_qp_type type) {
        context = verbs::open_loopback();
        ASSERT_NE(context, nullptr);
        for (auto* end : {&left, &right}) *end = std::make_unique<verbs::Endpoint>(context, type);
        ASSERT_TRUE(move(*left, *right, type) && move(*right, *left, type));
        from = add(left->pd, source);
        to = add(right->pd, target);
        source.fill(bytes);
        fake().delay(0, 300);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_dereg_mr(from), 0);
        EXPECT_EQ(ibv_dereg_mr(to), 0);
        left.reset();
        right.reset();
        EXPECT_EQ(ibv_close_device(context), 0);
    }
    static ibv_mr* add(ibv_pd* pd, const DeviceBuffer& buffer) {
        ibv_mr* mr = ibv_reg_mr_iova2(pd, buffer.pointer(), buffer.size(), buffer.address(),
                                      verbs::kAllAccess);
        EXPECT_NE(mr, nullptr);
        return mr;
    }
    // To RTS.
    static bool move(const verbs::Endpoint& end, const verbs::Endpoint& peer, ibv_qp_type type) {
        const bool uc = type == IBV_QPT_UC;
        ibv_qp_attr a{};
        a.port_num = 1;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        a.qkey = kQkey;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer.qp->qp_num;
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.hop_limit = 64;
        if (ibv_query_gid(end.context, 1, 0, &a.ah_attr.grh.dgid) != 0) return false;
        a.qp_state = IBV_QPS_INIT;
        const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                         (uc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
        if (ibv_modify_qp(end.qp, &a, init) != 0) return false;
        a.qp_state = IBV_QPS_RTR;
        const int ready = uc ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0;
        if (ibv_modify_qp(end.qp, &a, IBV_QP_STATE | ready) != 0) return false;
        a.qp_state = IBV_QPS_RTS;
        return ibv_modify_qp(end.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
    }
    void receive(std::size_t offset, std::uint32_t length) const {
        ibv_sge sge{target.address() + offset, length, to->lkey};
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        ASSERT_EQ(ibv_post_recv(right->qp, &wr, &bad), 0);
    }
    ibv_send_wr request(ibv_wr_opcode code, ibv_sge& sge) const {
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = code;
        wr.send_flags = IBV_SEND_SIGNALED;
        return wr;
    }
    // Part of the source, as bytes.
    std::vector<unsigned char> part(std::size_t offset, std::size_t length) const {
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
        return {begin, begin + static_cast<std::ptrdiff_t>(length)};
    }
    std::vector<unsigned char> landed(std::size_t offset, std::size_t length) const {
        const std::vector<unsigned char> all = target.contents();
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offset);
        return {begin, begin + static_cast<std::ptrdiff_t>(length)};
    }

    ibv_context* context = nullptr;
    const DeviceBuffer source{1 << 20};
    const DeviceBuffer target{1 << 20};
    const std::vector<unsigned char> bytes = pattern(1 << 20, 9);
    std::unique_ptr<verbs::Endpoint> left;
    std::unique_ptr<verbs::Endpoint> right;
    ibv_mr* from = nullptr;
    ibv_mr* to = nullptr;
};

TEST_F(UnreliableTest, SendsAndWritesOfAConnection) {
    open(IBV_QPT_UC);
    for (const std::uint32_t size : {1u, 1000u, 1024u, 5000u, 30'000u}) {
        for (const ibv_wr_opcode code : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM}) {
            const std::size_t offset = size * 7 + static_cast<std::size_t>(code);
            receive(offset, code == IBV_WR_SEND ? size : 0);
            ibv_sge sge{source.address() + 3, size, from->lkey};
            ibv_send_wr wr = request(code, sge), *bad = nullptr;
            wr.wr.rdma.remote_addr = target.address() + offset;
            wr.wr.rdma.rkey = to->rkey;
            ASSERT_EQ(ibv_post_send(left->qp, &wr, &bad), 0);
            ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
            const ibv_wc wc = right->completion();
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.byte_len, size);
            EXPECT_EQ(landed(offset, size), part(3, size)) << size;
        }
    }
}

TEST_F(UnreliableTest, Datagrams) {
    open(IBV_QPT_UD);
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.hop_limit = 64;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &attributes.grh.dgid), 0);
    ibv_ah* const ah = ibv_create_ah(left->pd, &attributes);
    ASSERT_NE(ah, nullptr);
    constexpr std::uint32_t kSize = 900, kRoom = 1000;
    for (unsigned i = 0; i < 8; ++i) receive(i * kRoom, kRoom);
    for (unsigned i = 0; i < 8; ++i) {
        ibv_sge sge{source.address() + i * kSize, kSize, from->lkey};
        ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad = nullptr;
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = right->qp->qp_num;
        wr.wr.ud.remote_qkey = kQkey;
        ASSERT_EQ(ibv_post_send(left->qp, &wr, &bad), 0);
    }
    for (unsigned i = 0; i < 8; ++i) {
        ASSERT_EQ(left->completion().status, IBV_WC_SUCCESS);
        const ibv_wc wc = right->completion();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, kHeader + kSize);
        EXPECT_EQ(landed(i * kRoom + kHeader, kSize), part(i * kSize, kSize)) << i;
    }
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(UnreliableTest, FreedMemoryIsAnError) {
    open(IBV_QPT_UC);
    const DeviceBuffer other(4096);
    ibv_mr* const mr = add(left->pd, other);
    fake().release(other.address());
    ibv_sge sge{other.address(), 100, mr->lkey};
    ibv_send_wr wr = request(IBV_WR_SEND, sge), *bad = nullptr;
    ASSERT_EQ(ibv_post_send(left->qp, &wr, &bad), 0);
    EXPECT_EQ(left->completion().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace feroce::gpu_test::unreliable_test
