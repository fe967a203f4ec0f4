// libibverbs without memory; see starved.hpp.
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdlib>

#include "starved.hpp"

extern "C" int ibv_read_sysfs_file(const char* directory, const char* file, char* out,
                                   std::size_t size);

namespace feroce::starved {
namespace {

ibv_context* open_first() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr) return nullptr;
    ibv_context* context = count > 0 ? ibv_open_device(list[0]) : nullptr;
    const int code = errno;
    ibv_free_device_list(list);
    errno = code;
    return context;
}

class StarvedVerbs : public testing::Test {
protected:
    void SetUp() override {
        ::setenv("FEROCE_DEVICES", "lo", 1);
        ::setenv("FEROCE_LOG", "off", 1);
        // The first time all of the device is made, so this is a case of its own.
        for (long n = 0; context == nullptr && n < kAllocationsMax; ++n) {
            fail_allocation(n);
            context = open_first();
            const int code = errno;
            const bool failed = end_failing();
            if (context == nullptr) {
                ASSERT_TRUE(failed) << n << ": " << code;
            }
        }
        ASSERT_NE(context, nullptr);
        pd = ibv_alloc_pd(context);
        channel = ibv_create_comp_channel(context);
        cq = ibv_create_cq(context, 16, nullptr, channel, 0);
        ASSERT_NE(cq, nullptr);
        ASSERT_NE(pd, nullptr);
        ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    }
    // Nothing that failed counts as alive.
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
        EXPECT_EQ(ibv_alloc_pd(context), nullptr) << "the device is still open";
    }

    ibv_qp* make_qp() {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {16, 16, 2, 2, 64};
        return ibv_create_qp(pd, &init);
    }
    void starve_shared_queue();
    ibv_ah_attr address() const {
        ibv_ah_attr a{};
        a.is_global = 1;
        a.port_num = 1;
        a.grh.hop_limit = 64;
        a.grh.dgid = gid;
        return a;
    }
    static constexpr std::size_t kSteps = 3;  // To INIT, RTR and RTS.
    bool step(ibv_qp* qp, std::size_t number) {
        ibv_qp_attr a{};
        a.port_num = 1;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = qp->qp_num;
        a.max_dest_rd_atomic = a.max_rd_atomic = 4;
        a.ah_attr = address();
        a.timeout = 14;
        const std::array<std::pair<ibv_qp_state, int>, 3> steps{
            {{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
             {IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
             {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}}};
        a.qp_state = steps.at(number).first;
        return ibv_modify_qp(qp, &a, steps.at(number).second) == 0;
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_gid gid{};
};

// A case for a call that makes a `T`.
template <class T, class Make, class Destroy>
void starve_object(const char* name, Make make, Destroy destroy) {
    T* object = nullptr;
    starve({.name = name,
            .call =
                [&] {
                    object = make();
                    return object != nullptr;
                },
            .undo = [&] { EXPECT_EQ(destroy(object), 0); }});
}

void StarvedVerbs::starve_shared_queue() {
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    ibv_xrcd* xrcd = ibv_open_xrcd(context, &domain);
    ASSERT_NE(xrcd, nullptr);
    ibv_srq_init_attr_ex init{};
    init.attr = {16, 2, 0};
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = pd;
    init.xrcd = xrcd;
    init.cq = cq;
    starve_object<ibv_srq>(
        "ibv_create_srq_ex", [&] { return ibv_create_srq_ex(context, &init); }, ibv_destroy_srq);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(StarvedVerbs, DevicesAndDomains) {
    starve_object<ibv_context>("ibv_open_device", open_first, ibv_close_device);
    starve_object<ibv_pd>(
        "ibv_alloc_pd", [&] { return ibv_alloc_pd(context); }, ibv_dealloc_pd);
    ibv_td_init_attr td{};
    starve_object<ibv_td>(
        "ibv_alloc_td", [&] { return ibv_alloc_td(context, &td); }, ibv_dealloc_td);
    ibv_parent_domain_init_attr parent{};
    parent.pd = pd;
    starve_object<ibv_pd>(
        "ibv_alloc_parent_domain", [&] { return ibv_alloc_parent_domain(context, &parent); },
        ibv_dealloc_pd);
    starve_object<ibv_comp_channel>(
        "ibv_create_comp_channel", [&] { return ibv_create_comp_channel(context); },
        ibv_destroy_comp_channel);
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    starve_object<ibv_xrcd>(
        "ibv_open_xrcd", [&] { return ibv_open_xrcd(context, &domain); }, ibv_close_xrcd);
}

TEST_F(StarvedVerbs, Memory) {
    std::array<char, 256> bytes{};
    // Through the function: the macro of the same name wants the address as an integer.
    starve_object<ibv_mr>(
        "ibv_reg_mr",
        [&] { return (ibv_reg_mr)(pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE); },
        ibv_dereg_mr);
    starve_object<ibv_mr>(
        "ibv_alloc_null_mr", [&] { return ibv_alloc_null_mr(pd); }, ibv_dereg_mr);
    starve_object<ibv_mw>(
        "ibv_alloc_mw", [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw);
    ibv_alloc_dm_attr dm{};
    dm.length = 4096;
    starve_object<ibv_dm>(
        "ibv_alloc_dm", [&] { return ibv_alloc_dm(context, &dm); }, ibv_free_dm);
    ibv_dm* block = ibv_alloc_dm(context, &dm);
    ibv_dm* shared = nullptr;
    ASSERT_NE(block, nullptr);
    starve_object<ibv_mr>(
        "ibv_reg_dm_mr",
        [&] {
            return ibv_reg_dm_mr(pd, block, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
        },
        ibv_dereg_mr);
    EXPECT_EQ(ibv_free_dm(block), 0);
    starve({.name = "ibv_free_dm",
            .prepare = [&] { block = ibv_alloc_dm(context, &dm); },
            .call = [&] { return ibv_free_dm(block) == 0; },
            .undo = [] {},
            .needs_memory = false,
            .may_fail = false});
    starve({.name = "ibv_unimport_dm",
            .prepare =
                [&] {
                    block = ibv_alloc_dm(context, &dm);
                    shared = ibv_import_dm(context, block->handle);
                    ASSERT_NE(shared, nullptr);
                },
            .call =
                [&] {
                    ibv_unimport_dm(shared);
                    return true;
                },
            .undo = [&] { EXPECT_EQ(ibv_free_dm(block), 0); },
            .needs_memory = false,
            .may_fail = false});
    std::array<char, 64> text{};
    starve({.name = "ibv_read_sysfs_file",
            .call =
                [&] {
                    return ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text.data(),
                                               text.size()) > 0;
                },
            .undo = [] {}});
}

TEST_F(StarvedVerbs, Queues) {
    starve_object<ibv_cq>(
        "ibv_create_cq", [&] { return ibv_create_cq(context, 16, nullptr, channel, 0); },
        ibv_destroy_cq);
    ibv_cq_init_attr_ex extended{};
    extended.cqe = 16;
    starve_object<ibv_cq_ex>(
        "ibv_create_cq_ex", [&] { return ibv_create_cq_ex(context, &extended); },
        [](ibv_cq_ex* made) { return ibv_destroy_cq(ibv_cq_ex_to_cq(made)); });
    ibv_srq_init_attr srq{};
    srq.attr = {16, 2, 0};
    starve_object<ibv_srq>(
        "ibv_create_srq", [&] { return ibv_create_srq(pd, &srq); }, ibv_destroy_srq);
    starve_object<ibv_qp>(
        "ibv_create_qp", [&] { return make_qp(); }, ibv_destroy_qp);
    starve_shared_queue();
    ibv_ah_attr to = address();
    starve_object<ibv_ah>(
        "ibv_create_ah", [&] { return ibv_create_ah(pd, &to); }, ibv_destroy_ah);
    int entries = 32;
    starve({.name = "ibv_resize_cq",
            .call = [&] { return ibv_resize_cq(cq, entries) == 0; },
            .undo = [&] { entries = entries == 32 ? 300 : 32; },
            .needs_memory = false});
    ibv_cq* doomed = nullptr;
    starve({.name = "ibv_destroy_cq",
            .prepare = [&] { doomed = ibv_create_cq(context, 16, nullptr, nullptr, 0); },
            .call =
                [&] {
                    errno = ibv_destroy_cq(doomed);
                    return errno == 0;
                },
            .undo = [] {},
            .needs_memory = false,
            .may_fail = false});
}

TEST_F(StarvedVerbs, QueuePairsThatMoveOn) {
    ibv_qp* qp = nullptr;
    for (std::size_t number = 0; number < kSteps; ++number)
        starve({.name = "ibv_modify_qp",
                .prepare =
                    [&] {
                        qp = make_qp();
                        for (std::size_t i = 0; i < number; ++i) ASSERT_TRUE(step(qp, i));
                    },
                .call = [&] { return step(qp, number); },
                .undo = [&] { EXPECT_EQ(ibv_destroy_qp(qp), 0); },
                .needs_memory = number == 1});
    // Another destination, and larger rings.
    ibv_gid other = gid;
    other.raw[15] ^= 2;
    starve({.name = "ibv_modify_qp, SQD",
            .prepare =
                [&] {
                    qp = make_qp();
                    for (std::size_t i = 0; i < kSteps; ++i) ASSERT_TRUE(step(qp, i));
                    ibv_qp_attr a{};
                    a.qp_state = IBV_QPS_SQD;
                    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
                },
            .call =
                [&] {
                    ibv_qp_attr a{};
                    a.ah_attr = address();
                    a.ah_attr.grh.dgid = other;
                    a.max_dest_rd_atomic = a.max_rd_atomic = 16;
                    a.qp_state = IBV_QPS_SQD;
                    return ibv_modify_qp(qp, &a,
                                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC |
                                             IBV_QP_MAX_DEST_RD_ATOMIC) == 0;
                },
            .undo = [&] { EXPECT_EQ(ibv_destroy_qp(qp), 0); }});
}

}  // namespace
}  // namespace feroce::starved
