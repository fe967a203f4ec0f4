// Asks a device which queue pair transitions it accepts, and prints the answer in the format of
// src/transport/qp_state.golden. Usage: qp_table DEVICE GID_INDEX GOLDEN
// The golden file only says where to look: for each of its rows the required set is tried, then
// each required attribute left out and each other one added, always on a fresh queue pair.
// Transitions without a row are tried bare and with everything, and printed if one is accepted.
// Nothing of Feroce is linked but its C interface, so that the program runs on the kernel's rxe
// too.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Named {
    const char* name;
    int value;
};

constexpr std::array kTypes{Named{"RC", IBV_QPT_RC}, Named{"UC", IBV_QPT_UC},
                            Named{"UD", IBV_QPT_UD}, Named{"XRC_SEND", IBV_QPT_XRC_SEND},
                            Named{"XRC_RECV", IBV_QPT_XRC_RECV}};
constexpr std::array kStates{Named{"RESET", IBV_QPS_RESET}, Named{"INIT", IBV_QPS_INIT},
                             Named{"RTR", IBV_QPS_RTR},     Named{"RTS", IBV_QPS_RTS},
                             Named{"SQD", IBV_QPS_SQD},     Named{"SQE", IBV_QPS_SQE},
                             Named{"ERR", IBV_QPS_ERR}};
#define NAMED(x) \
    Named {      \
#x, x    \
    }
constexpr std::array kAttributes{
    NAMED(IBV_QP_CUR_STATE),
    NAMED(IBV_QP_EN_SQD_ASYNC_NOTIFY),
    NAMED(IBV_QP_ACCESS_FLAGS),
    NAMED(IBV_QP_PKEY_INDEX),
    NAMED(IBV_QP_PORT),
    NAMED(IBV_QP_QKEY),
    NAMED(IBV_QP_AV),
    NAMED(IBV_QP_PATH_MTU),
    NAMED(IBV_QP_TIMEOUT),
    NAMED(IBV_QP_RETRY_CNT),
    NAMED(IBV_QP_RNR_RETRY),
    NAMED(IBV_QP_RQ_PSN),
    NAMED(IBV_QP_MAX_QP_RD_ATOMIC),
    NAMED(IBV_QP_ALT_PATH),
    NAMED(IBV_QP_MIN_RNR_TIMER),
    NAMED(IBV_QP_SQ_PSN),
    NAMED(IBV_QP_MAX_DEST_RD_ATOMIC),
    NAMED(IBV_QP_PATH_MIG_STATE),
    NAMED(IBV_QP_CAP),
    NAMED(IBV_QP_DEST_QPN),
    NAMED(IBV_QP_RATE_LIMIT),
};
#undef NAMED

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "qp_table: %s\n", what.c_str());
    std::exit(2);
}

// The rows of the golden file: "TYPE FROM TO" to the mask that the transition requires.
std::map<std::string, int> read_golden(const char* path) {
    std::ifstream file(path);
    std::map<std::string, int> rows;
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        std::istringstream words(line.substr(colon + 1, line.find(';') - colon - 1));
        int mask = 0;
        for (std::string word; words >> word;)
            for (const Named& attribute : kAttributes)
                if (word == attribute.name) mask |= attribute.value;
        rows[line.substr(0, colon)] = mask;
    }
    if (rows.empty()) fail(std::string("no rows in ") + path);
    return rows;
}

class Prober {
public:
    Prober(const std::string& device, int gid_index, std::map<std::string, int> golden)
        : golden_(std::move(golden)) {
        ibv_device** list = ibv_get_device_list(nullptr);
        for (ibv_device** d = list; d != nullptr && *d != nullptr; ++d)
            if (device == ibv_get_device_name(*d)) context_ = ibv_open_device(*d);
        if (context_ == nullptr) fail("cannot open " + device);
        pd_ = ibv_alloc_pd(context_);
        cq_ = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
        ibv_gid gid{};
        if (pd_ == nullptr || cq_ == nullptr) fail("cannot make a protection domain and a CQ");
        if (ibv_query_gid(context_, 1, gid_index, &gid) != 0) fail("there is no such GID");
        ibv_xrcd_init_attr xrcd{};
        xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        xrcd.fd = -1;
        xrcd.oflags = O_CREAT;
        xrcd_ = ibv_open_xrcd(context_, &xrcd);
        fill_attributes(gid, gid_index);
    }

    void print_type(const Named& type) {
        ibv_qp* qp = create(type.value);
        if (qp == nullptr) {
            std::printf("%s: unsupported\n", type.name);
            return;
        }
        ibv_destroy_qp(qp);
        for (const Named& from : kStates)
            for (const Named& to : kStates) print_transition(type, from, to);
    }

private:
    // Values that are good for every transition: only the mask may be a reason to refuse.
    void fill_attributes(const ibv_gid& gid, int gid_index) {
        attr_.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        attr_.port_num = attr_.alt_port_num = 1;
        attr_.qkey = 0x1234;
        attr_.path_mtu = IBV_MTU_512;
        attr_.timeout = attr_.alt_timeout = 14;
        attr_.retry_cnt = attr_.rnr_retry = 7;
        attr_.max_rd_atomic = attr_.max_dest_rd_atomic = 1;
        attr_.min_rnr_timer = 12;
        attr_.path_mig_state = IBV_MIG_MIGRATED;
        attr_.cap = {1, 1, 1, 1, 0};
        attr_.dest_qp_num = 0x11;
        // The device itself as destination: its address needs nobody's answer.
        attr_.ah_attr.is_global = 1;
        attr_.ah_attr.grh.dgid = gid;
        attr_.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        attr_.ah_attr.grh.hop_limit = 64;
        attr_.ah_attr.port_num = 1;
        attr_.alt_ah_attr = attr_.ah_attr;
    }

    ibv_qp* create(int type) {
        ibv_qp_init_attr_ex init{};
        init.qp_type = static_cast<ibv_qp_type>(type);
        init.cap = {1, 1, 1, 1, 0};
        init.send_cq = init.recv_cq = cq_;
        init.pd = pd_;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        if (type == IBV_QPT_XRC_RECV) {
            init.xrcd = xrcd_;
            init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
            init.cap = {};
        } else if (type == IBV_QPT_XRC_SEND) {
            init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
            init.recv_cq = nullptr;
        }
        if ((type == IBV_QPT_XRC_RECV || type == IBV_QPT_XRC_SEND) && xrcd_ == nullptr)
            return nullptr;
        return ibv_create_qp_ex(context_, &init);
    }

    bool modify(ibv_qp* qp, int from, int to, int mask) {
        ibv_qp_attr attr = attr_;
        attr.qp_state = static_cast<ibv_qp_state>(to);
        attr.cur_qp_state = static_cast<ibv_qp_state>(from);
        return ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE) == 0;
    }

    bool step(ibv_qp* qp, const char* type, int from, int to) {
        const auto name = [](int state) { return std::string(kStates[state].name); };
        return modify(qp, from, to,
                      golden_.at(std::string(type) + " " + name(from) + " " + name(to)));
    }

    // The send queue drains by itself, but the kernel does it in the background.
    bool is_drained(ibv_qp* qp) {
        for (int i = 0; i < 1'000'000; ++i) {
            ibv_qp_attr attr{};
            ibv_qp_init_attr init{};
            if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) != 0) return false;
            if (attr.qp_state == IBV_QPS_SQD && attr.sq_draining == 0) return true;
        }
        return false;
    }

    // A send that fails here, not at the peer, is the only way into SQE.
    bool fail_a_send(ibv_qp* qp) {
        ibv_sge sge{0x1000, 8, 0xdead};
        ibv_send_wr wr{};
        ibv_send_wr* bad = nullptr;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        ibv_ah* ah = qp->qp_type == IBV_QPT_UD ? ibv_create_ah(pd_, &attr_.ah_attr) : nullptr;
        wr.wr.ud = {ah, 1, 0};
        if (ibv_post_send(qp, &wr, &bad) != 0) return false;
        ibv_wc wc{};
        int found = 0;
        for (int i = 0; i < 10'000'000 && found == 0; ++i) found = ibv_poll_cq(cq_, 1, &wc);
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
        if (ah != nullptr) ibv_destroy_ah(ah);
        return attr.qp_state == IBV_QPS_SQE;
    }

    bool bring_to(ibv_qp* qp, const char* type, int state) {
        static constexpr std::array kPath{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        if (state == IBV_QPS_ERR)
            return step(qp, type, IBV_QPS_RESET, IBV_QPS_INIT) &&
                   step(qp, type, IBV_QPS_INIT, IBV_QPS_ERR);
        const int last = state < IBV_QPS_RTS ? state : static_cast<int>(IBV_QPS_RTS);
        for (int at = 0; at < last; ++at)
            if (!step(qp, type, kPath[at], kPath[at + 1])) return false;
        if (state == IBV_QPS_SQD) return step(qp, type, IBV_QPS_RTS, IBV_QPS_SQD) && is_drained(qp);
        if (state == IBV_QPS_SQE)
            return (qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_UD) && fail_a_send(qp);
        return true;
    }

    // Whether a fresh queue pair takes the transition; nothing if it does not reach `from`.
    std::optional<bool> accepts(const Named& type, int from, int to, int mask) {
        ibv_qp* qp = create(type.value);
        if (qp == nullptr) fail("out of queue pairs");
        std::optional<bool> answer;
        if (bring_to(qp, type.name, from)) answer = modify(qp, from, to, mask);
        if (ibv_destroy_qp(qp) != 0) fail("cannot destroy a queue pair");
        return answer;
    }

    void print_transition(const Named& type, const Named& from, const Named& to) {
        const std::string key = std::string(type.name) + " " + from.name + " " + to.name;
        const auto row = golden_.find(key);
        const bool is_listed = row != golden_.end();
        const int base = is_listed ? row->second : 0;
        const std::optional<bool> first = accepts(type, from.value, to.value, base);
        if (!first) {
            if (is_listed) std::printf("%s: unreachable\n", key.c_str());
            return;
        }
        if (!is_listed) {
            constexpr int kEverything = 0x1f'fffe;
            if (*first || *accepts(type, from.value, to.value, kEverything))
                std::printf("%s: accepted\n", key.c_str());
            return;
        }
        if (!*first) {
            std::printf("%s: refused\n", key.c_str());
            return;
        }
        std::string required;
        std::string optional;
        for (const Named& attribute : kAttributes) {
            if (!accepts(type, from.value, to.value, base & ~attribute.value).value_or(true))
                required += std::string(" ") + attribute.name;
            else if (accepts(type, from.value, to.value, base | attribute.value).value_or(false))
                optional += std::string(" ") + attribute.name;
        }
        std::printf("%s: required%s; optional%s\n", key.c_str(),
                    required.empty() ? " -" : required.c_str(),
                    optional.empty() ? " -" : optional.c_str());
    }

    std::map<std::string, int> golden_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_xrcd* xrcd_ = nullptr;
    ibv_qp_attr attr_{};
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) fail("usage: qp_table DEVICE GID_INDEX GOLDEN");
    Prober prober(argv[1], std::atoi(argv[2]), read_golden(argv[3]));
    for (const Named& type : kTypes) prober.print_type(type);
    return 0;
}
