// Programs that meet faults of calls, started by faults_test.py with FEROCE_FAULTS set:
//   walk [events]  sessions, one after the other, until one ends well; no descriptor may be left
//   codes          each call fails once and must tell of it as rdma-core's does, then succeed
//   late           completions that come late, for one that polls and one that sleeps
//   qp, cq, device asynchronous events
//   child          a forked child counts its own calls
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "end.hpp"

namespace faults {
namespace {

constexpr int kInjected = EPROTO;  // No call of ours fails with it by itself.

int descriptors() {
    int count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
}

bool session(bool with_events) {
    End end;
    end.with_events = with_events;
    const bool good = end.open() && end.connect() && end.transfer();
    return end.close() && good;
}

// Each session that fails must leave what the ones that succeed leave.
void walk(bool with_events) {
    constexpr int kSessionsMax = 1000;
    int failures = 0;
    for (; failures < kSessionsMax && !session(with_events); ++failures) continue;
    const int after_first = descriptors();
    for (int i = 0; i < 3; ++i) (void)session(with_events);
    expect(descriptors() == after_first, "as many descriptors after each session");
    std::printf("ended well after %d failures\n", failures);
}

template <class Call>
auto* null_once(const char* name, Call call) {
    errno = 0;
    auto* first = call();
    expect(first == nullptr && errno == kInjected, name);
    auto* second = call();
    expect(second != nullptr, name);
    return second;
}

enum class Tells { Code, MinusOne, Negative };

template <class Call>
void number_once(const char* name, Tells how, Call call) {
    errno = 0;
    const auto first = static_cast<long>(call());
    const long wanted = how == Tells::Code ? kInjected : how == Tells::Negative ? -kInjected : -1;
    expect(first == wanted && errno == kInjected, name);
    expect(static_cast<long>(call()) >= 0, name);
}

void codes_of_queries(ibv_context* context) {
    ibv_device_attr device;
    number_once("query_device", Tells::Code, [&] { return ibv_query_device(context, &device); });
    ibv_port_attr port;
    number_once("query_port", Tells::Code, [&] { return ibv_query_port(context, 1, &port); });
    ibv_gid gid;
    number_once("query_gid", Tells::MinusOne, [&] { return ibv_query_gid(context, 1, 0, &gid); });
    ibv_gid_entry entry;
    number_once("query_gid_ex", Tells::Code,
                [&] { return ibv_query_gid_ex(context, 1, 0, &entry, 0); });
    std::array<ibv_gid_entry, 64> table;
    number_once("query_gid_table", Tells::Negative,
                [&] { return ibv_query_gid_table(context, table.data(), table.size(), 0); });
}

void codes_of_memory(End& end) {
    const int access = IBV_ACCESS_LOCAL_WRITE;
    end.mr = null_once(
        "reg_mr", [&] { return ibv_reg_mr(end.pd, end.memory.data(), end.memory.size(), access); });
    number_once("rereg_mr", Tells::MinusOne, [&] {
        return ibv_rereg_mr(end.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
    });
    ibv_mw* mw = null_once("alloc_mw", [&] { return ibv_alloc_mw(end.pd, IBV_MW_TYPE_2); });
    expect(ibv_dealloc_mw(mw) == 0, "dealloc_mw");
    ibv_srq_init_attr shared{};
    shared.attr = {4, 1, 0};
    ibv_srq* srq = null_once("create_srq", [&] { return ibv_create_srq(end.pd, &shared); });
    ibv_srq_attr limit{};
    limit.srq_limit = 1;
    number_once("modify_srq", Tells::Code,
                [&] { return ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT); });
    ibv_recv_wr wr{}, *bad = nullptr;
    number_once("post_srq_recv", Tells::Code, [&] { return ibv_post_srq_recv(srq, &wr, &bad); });
    expect(bad == &wr, "bad_wr of a shared receive");
    expect(ibv_destroy_srq(srq) == 0, "destroy_srq");
    ibv_ah_attr where{};
    where.is_global = 1;
    where.port_num = 1;
    expect(ibv_query_gid(end.context, 1, 0, &where.grh.dgid) == 0, "query_gid");
    ibv_ah* ah = null_once("create_ah", [&] { return ibv_create_ah(end.pd, &where); });
    expect(ibv_destroy_ah(ah) == 0, "destroy_ah");
}

void codes_of_queues(End& end) {
    end.channel =
        null_once("create_comp_channel", [&] { return ibv_create_comp_channel(end.context); });
    end.cq = null_once("create_cq",
                       [&] { return ibv_create_cq(end.context, 8, nullptr, end.channel, 0); });
    number_once("resize_cq", Tells::Code, [&] { return ibv_resize_cq(end.cq, 16); });
    number_once("req_notify_cq", Tells::Code, [&] { return ibv_req_notify_cq(end.cq, 0); });
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    end.qp = null_once("create_qp", [&] { return ibv_create_qp(end.pd, &init); });
    ibv_qp_attr attributes{};
    number_once("query_qp", Tells::Code,
                [&] { return ibv_query_qp(end.qp, &attributes, IBV_QP_STATE, nullptr); });
    // The first modify fails and changes nothing, so that the queue pair connects afterwards.
    expect(!end.connect(), "the first modify_qp");
    expect(end.qp->state == IBV_QPS_RESET, "a refused modify_qp leaves the state");
    expect(end.connect(), "modify_qp");
    number_once("post_recv", Tells::Code, [&] { return end.post_receive(); });
    number_once("post_send", Tells::Code, [&] { return end.post_send(); });
    ibv_wc wc{};
    int polled = 0;
    errno = 0;
    while ((polled = ibv_poll_cq(end.cq, 1, &wc)) == 0) continue;
    expect(polled == -kInjected && errno == kInjected, "poll_cq");
    expect(end.await_completions(2), "completions are there after a failed poll");
}

void codes_of_connections() {
    rdma_event_channel* channel =
        null_once("rdma_create_event_channel", [] { return rdma_create_event_channel(); });
    rdma_cm_id* id = nullptr;
    number_once("rdma_create_id", Tells::MinusOne,
                [&] { return rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP); });
    rdma_addrinfo hints{}, *info = nullptr;
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = RAI_PASSIVE;
    number_once("rdma_getaddrinfo", Tells::MinusOne,
                [&] { return rdma_getaddrinfo("127.0.0.1", nullptr, &hints, &info); });
    number_once("rdma_bind_addr", Tells::MinusOne,
                [&] { return rdma_bind_addr(id, info->ai_src_addr); });
    number_once("rdma_listen", Tells::MinusOne, [&] { return rdma_listen(id, 1); });
    // They fail before they look at the id, which is in no state for them.
    expect(rdma_resolve_addr(id, nullptr, info->ai_src_addr, 100) == -1 && errno == kInjected,
           "rdma_resolve_addr");
    expect(rdma_resolve_route(id, 100) == -1 && errno == kInjected, "rdma_resolve_route");
    expect(rdma_connect(id, nullptr) == -1 && errno == kInjected, "rdma_connect");
    expect(rdma_accept(id, nullptr) == -1 && errno == kInjected, "rdma_accept");
    ibv_qp_init_attr init{};
    expect(rdma_create_qp(id, nullptr, &init) == -1 && errno == kInjected, "rdma_create_qp");
    rdma_freeaddrinfo(info);
    expect(rdma_destroy_id(id) == 0, "rdma_destroy_id");
    rdma_destroy_event_channel(channel);
}

void codes() {
    End end;
    int devices = -1;
    expect(ibv_get_device_list(&devices) == nullptr && errno == kInjected && devices == 0,
           "get_device_list");
    ibv_device** list = ibv_get_device_list(&devices);
    expect(list != nullptr && devices > 0, "get_device_list");
    end.context = null_once("open_device", [&] { return ibv_open_device(list[0]); });
    ibv_free_device_list(list);
    end.pd = null_once("alloc_pd", [&] { return ibv_alloc_pd(end.context); });
    codes_of_queries(end.context);
    codes_of_memory(end);
    codes_of_queues(end);
    expect(end.close(), "nothing is left of refused calls");
    codes_of_connections();
}

void expect_event(ibv_context* context, ibv_event_type type) {
    ibv_async_event event{};
    expect(ibv_get_async_event(context, &event) == 0, "ibv_get_async_event");
    expect(event.event_type == type, ibv_event_type_str(type));
    ibv_ack_async_event(&event);
}

void late(bool with_events) {
    End end;
    end.with_events = with_events;
    expect(end.open() && end.connect(), "a connection");
    for (int i = 0; i < 20; ++i) expect(end.transfer(), "a message");
}

// FEROCE_FAULTS=ibv_post_send:QP_FATAL@2
void qp_event() {
    End end;
    expect(end.open() && end.connect() && end.transfer(), "a message");
    expect(end.post_receive() == 0 && end.post_send() == 0, "the call itself succeeds");
    expect_event(end.context, IBV_EVENT_QP_FATAL);
    ibv_wc wc{};
    for (int i = 0; i < 2; ++i) {
        while (ibv_poll_cq(end.cq, 1, &wc) == 0) continue;
        expect(wc.status == IBV_WC_WR_FLUSH_ERR, "requests of a failed queue pair are flushed");
    }
}

// FEROCE_FAULTS=ibv_poll_cq:CQ_ERR@2
void cq_event() {
    End end;
    expect(end.open() && end.connect() && end.transfer(), "a message");
    expect_event(end.context, IBV_EVENT_CQ_ERR);
}

// FEROCE_FAULTS=PORT_ERR@1ms,PORT_ACTIVE@2ms,ibv_alloc_pd:DEVICE_FATAL@1
void device_events() {
    End end;
    expect(end.open(), "a device");
    bool fatal = false, down = false, up = false;
    while (!fatal || !up) {
        ibv_async_event event{};
        expect(ibv_get_async_event(end.context, &event) == 0, "ibv_get_async_event");
        fatal |= event.event_type == IBV_EVENT_DEVICE_FATAL;
        down |= event.event_type == IBV_EVENT_PORT_ERR;
        up |= event.event_type == IBV_EVENT_PORT_ACTIVE;
        expect(down || !up, "down comes before up");
        ibv_ack_async_event(&event);
    }
    ibv_port_attr port{};
    expect(ibv_query_port(end.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE, "up");
}

// FEROCE_FAULTS=ibv_alloc_pd:EPROTO@2
void child() {
    expect(session(false), "the first session");
    std::fflush(stdout);
    const pid_t pid = ::fork();
    if (pid == 0) {
        const bool first = session(false), second = session(false);
        std::fflush(stdout);
        ::_exit(first && !second && trouble == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child counts from the start");
    expect(!session(false), "the second of the parent");
}

// FEROCE_FAULTS=ibv_query_port:PORT_ERR@1
void port_down() {
    End end;
    expect(end.open(), "a device");
    ibv_port_attr port{};
    expect(ibv_query_port(end.context, 1, &port) == 0 && port.state == IBV_PORT_DOWN, "down");
    expect_event(end.context, IBV_EVENT_PORT_ERR);
    expect(end.connect() && end.transfer(), "traffic goes on");
}

}  // namespace
}  // namespace faults

int main(int count, char** words) {
    using namespace faults;
    const std::string_view what = count > 1 ? words[1] : "";
    const bool with_events = count > 2 && std::string_view(words[2]) == "events";
    if (what == "walk") walk(with_events);
    if (what == "codes") codes();
    if (what == "late") late(with_events);
    if (what == "qp") qp_event();
    if (what == "cq") cq_event();
    if (what == "device") device_events();
    if (what == "port") port_down();
    if (what == "child") child();
    return trouble == 0 ? 0 : 1;
}
