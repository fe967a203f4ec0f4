// A table of all calls of libibverbs and librdmacm, each as a small program: it prepares what the
// call needs, says go(), calls, and cleans up. Tests run the rows in threads that are cancelled,
// that exit, that are left by siglongjmp(), or that get no memory, and then ask whether the device
// still works.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace feroce::calls {

// A queue pair that is connected to itself, and what goes with it.
struct World {
    ibv_device** devices = nullptr;
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
    ibv_gid gid{};
    std::array<char, 4096> buffer{};

    bool open();
    // A message to itself arrives, and both completions come.
    bool works();
    int post_send();
    int post_receive();
    ibv_qp* make_qp(ibv_srq* srq = nullptr) const;
    ibv_ah_attr address() const;
};

World& world();
inline World& w = world();

// What a row's program is told by its test.
class Run {
public:
    virtual ~Run() = default;
    virtual void go() = 0;  // The call comes next.
};

struct Row {
    const char* name;  // Of the exported symbol, or of the inline function that calls our table.
    void (*program)(Run&);
    // Waits for something that does not come: a cancellation may end it.
    bool blocks = false;
};

std::vector<Row> verbs_rows();
std::vector<Row> verbs_table_rows();  // Reached through the tables of a context.
std::vector<Row> rdmacm_rows();
std::vector<Row> rsocket_rows();
std::vector<Row> blocking_rows();
std::vector<Row> later_rows();  // Of rdma-core's releases after 44.
std::vector<Row> all_rows();

// For rdma_cm: the loopback address; port 0 is any.
sockaddr_in loopback(std::uint16_t port);

}  // namespace feroce::calls
