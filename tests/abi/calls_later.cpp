// The rows of calls that rdma-core got after the headers that we build with.
#include <rdma/rsocket.h>
#include <sys/epoll.h>

#include <bit>

#include "calls.hpp"

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_dmah;

extern "C" {
// Their structs are not ours to define: no argument is looked at where we pass null.
ibv_mr* register_extended(ibv_pd* pd, void* attributes) __asm__("ibv_reg_mr_ex");
void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** out);
void ibv_free_buf(ibv_buf* buffer);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access);
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer);
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
void* absent_alloc_dmah(ibv_context* context, void* attributes) __asm__("ibv_alloc_dmah");
int ibv_dealloc_dmah(ibv_dmah* handle);
int absent_query_counters(ibv_context* context, void* out,
                          std::size_t size) __asm__("_ibv_query_comp_cntr_caps");
void* absent_create_counter(ibv_context* context, void* attributes) __asm__("ibv_create_comp_cntr");
int ibv_destroy_comp_cntr(ibv_comp_cntr* counter);
int ibv_set_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* out);
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* out);
int absent_attach_counter(ibv_qp* qp, ibv_comp_cntr* counter,
                          void* attributes) __asm__("ibv_qp_attach_comp_cntr");
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** out);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type type, int status, std::uint64_t value);
int repoll_create(int flags);
int repoll_ctl(int epoll, int operation, int descriptor, epoll_event* event);
int repoll_wait(int epoll, epoll_event* events, int room, int timeout);
}

namespace feroce::calls {
namespace {

struct Buffer {
    ibv_buf* handle = nullptr;
    void* memory = ibv_alloc_buf(w.pd, 5000, &handle);
    void end() const {
        if (memory != nullptr) ibv_free_buf(handle);
    }
};

// An id and its channel, which nobody reads.
struct LoneId {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    LoneId() {
        if (channel != nullptr && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0)
            id = nullptr;
    }
    void resolve() const {
        if (id != nullptr) rdma_resolve_addrinfo(id, "127.0.0.1", "7471", nullptr);
    }
    void end() const {
        if (id != nullptr) rdma_destroy_id(id);
        if (channel != nullptr) rdma_destroy_event_channel(channel);
    }
};

// A newer event than Debian 12's enum has room for.
constexpr auto kUserEvent = std::bit_cast<rdma_cm_event_type>(18U);

// A call that is refused whatever its arguments.
template <auto kCall, class... Arguments>
void refused(Run& r, Arguments... arguments) {
    r.go();
    kCall(arguments...);
}

constexpr Row kRefusedRows[] = {
    {"ibv_alloc_dmah", [](Run& r) { refused<absent_alloc_dmah>(r, w.context, nullptr); }},
    {"ibv_dealloc_dmah", [](Run& r) { refused<ibv_dealloc_dmah>(r, nullptr); }},
    {"ibv_dm_export_dmabuf_fd", [](Run& r) { refused<ibv_dm_export_dmabuf_fd>(r, nullptr); }},
    {"ibv_export_buf_dmabuf_fd", [](Run& r) { refused<ibv_export_buf_dmabuf_fd>(r, nullptr); }},
    {"_ibv_query_comp_cntr_caps",
     [](Run& r) { refused<absent_query_counters>(r, w.context, nullptr, 16); }},
    {"ibv_create_comp_cntr", [](Run& r) { refused<absent_create_counter>(r, w.context, nullptr); }},
    {"ibv_destroy_comp_cntr", [](Run& r) { refused<ibv_destroy_comp_cntr>(r, nullptr); }},
    {"ibv_set_comp_cntr", [](Run& r) { refused<ibv_set_comp_cntr>(r, nullptr, 1); }},
    {"ibv_set_err_comp_cntr", [](Run& r) { refused<ibv_set_err_comp_cntr>(r, nullptr, 1); }},
    {"ibv_inc_comp_cntr", [](Run& r) { refused<ibv_inc_comp_cntr>(r, nullptr, 1); }},
    {"ibv_inc_err_comp_cntr", [](Run& r) { refused<ibv_inc_err_comp_cntr>(r, nullptr, 1); }},
    {"ibv_read_comp_cntr", [](Run& r) { refused<ibv_read_comp_cntr>(r, nullptr, nullptr); }},
    {"ibv_read_err_comp_cntr",
     [](Run& r) { refused<ibv_read_err_comp_cntr>(r, nullptr, nullptr); }},
    {"ibv_qp_attach_comp_cntr",
     [](Run& r) { refused<absent_attach_counter>(r, w.qp, nullptr, nullptr); }},
};

constexpr Row kLaterRows[] = {
    {"ibv_alloc_buf",
     [](Run& r) {
         r.go();
         Buffer().end();
     }},
    {"ibv_free_buf",
     [](Run& r) {
         const Buffer buffer;
         r.go();
         buffer.end();
     }},
    {"ibv_reg_buf_mr",
     [](Run& r) {
         const Buffer buffer;
         r.go();
         ibv_mr* mr = buffer.memory == nullptr
                          ? nullptr
                          : ibv_reg_buf_mr(w.pd, buffer.handle, buffer.memory, 4096, 0);
         if (mr != nullptr) ibv_dereg_mr(mr);
         buffer.end();
     }},
    {"ibv_reg_mr_ex",
     [](Run& r) {
         struct {
             std::size_t length = 64;
             int access = 0;
             std::uint64_t mask = 2;  // By address.
             std::uint64_t iova = 0;
             void* address = w.buffer.data();
         } wanted;
         r.go();
         if (ibv_mr* mr = register_extended(w.pd, &wanted)) ibv_dereg_mr(mr);
     }},
    {"rdma_resolve_addrinfo",
     [](Run& r) {
         const LoneId id;
         r.go();
         id.resolve();
         id.end();
     }},
    {"rdma_query_addrinfo",
     [](Run& r) {
         const LoneId id;
         id.resolve();
         rdma_addrinfo* list = nullptr;
         r.go();
         if (id.id != nullptr && rdma_query_addrinfo(id.id, &list) == 0) rdma_freeaddrinfo(list);
         id.end();
     }},
    {"rdma_write_cm_event",
     [](Run& r) {
         const LoneId id;
         r.go();
         if (id.id != nullptr) rdma_write_cm_event(id.id, kUserEvent, 0, 1);
         id.end();
     }},
    {"repoll_create",
     [](Run& r) {
         r.go();
         if (const int epoll = repoll_create(0); epoll >= 0) rclose(epoll);
     }},
    {"repoll_ctl",
     [](Run& r) {
         const int epoll = repoll_create(0);
         epoll_event event{};
         r.go();
         repoll_ctl(epoll, EPOLL_CTL_ADD, w.channel->fd, &event);
         if (epoll >= 0) rclose(epoll);
     }},
    {"repoll_wait",
     [](Run& r) {
         static const int epoll = repoll_create(0);  // Kept: who is cancelled cannot close it.
         epoll_event event{};
         r.go();
         repoll_wait(epoll, &event, 1, -1);
     },
     true},
};

}  // namespace

std::vector<Row> later_rows() {
    std::vector<Row> all(std::begin(kRefusedRows), std::end(kRefusedRows));
    all.insert(all.end(), std::begin(kLaterRows), std::end(kLaterRows));
    return all;
}

}  // namespace feroce::calls
