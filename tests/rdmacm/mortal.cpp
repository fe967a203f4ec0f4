// A process with an rdma_cm connection that ends as it is told to. Says what happens, a word a
// line.
//
//   mortal server ADDRESS PORT    "listening", "accepted", then the name of each event
//   mortal client ADDRESS PORT    "connected", then the name of each event
//   mortal bystander              "open": a device, and no rdma_cm
//
// Ends by a word on stdin: exit (by _exit), exec (becomes another program that lives on), segv;
// or at the end of stdin, orderly. Other words are for a client: write (no bytes; "written" or
// "failed" follows) and knock (asks for a second connection, and does not wait for an answer).
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void say(const char* word) {
    std::printf("%s\n", word);
    std::fflush(stdout);
}

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

void tell_events(rdma_cm_id* id) {
    for (;;) {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(id->channel, &event) != 0) fail("rdma_get_cm_event");
        say(rdma_event_str(event->event));
        rdma_ack_cm_event(event);
    }
}

rdma_cm_id* endpoint(const char* address, const char* port, bool passive) {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    if (passive) hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* found = nullptr;
    if (rdma_getaddrinfo(address, port, &hints, &found) != 0) fail("rdma_getaddrinfo");
    ibv_qp_init_attr attributes{};
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    rdma_cm_id* id = nullptr;
    if (rdma_create_ep(&id, found, nullptr, &attributes) != 0) fail("rdma_create_ep");
    return id;
}

// A second id, which sends a request to the same address.
void knock(const char* address, const char* port) {
    rdma_cm_id* id = endpoint(address, port, false);
    rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == nullptr || rdma_migrate_id(id, channel) != 0) fail("rdma_migrate_id");
    if (rdma_connect(id, nullptr) != 0) fail("rdma_connect");
}

void write_nothing(rdma_cm_id* id) {
    ibv_send_wr wr{};
    ibv_send_wr* bad = nullptr;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(id->qp, &wr, &bad) != 0) fail("ibv_post_send");
    ibv_wc completion{};
    if (rdma_get_send_comp(id, &completion) != 1) fail("rdma_get_send_comp");
    say(completion.status == IBV_WC_SUCCESS ? "written" : "failed");
}

struct Client {
    rdma_cm_id* id = nullptr;  // Null for others.
    const char* address = nullptr;
    const char* port = nullptr;
};

void obey(const Client& client = {}) {
    char line[32];
    while (std::fgets(line, sizeof line, stdin) != nullptr) {
        if (std::strncmp(line, "exit", 4) == 0) ::_exit(0);
        if (std::strncmp(line, "exec", 4) == 0) ::execlp("sleep", "sleep", "60", nullptr);
        if (std::strncmp(line, "segv", 4) == 0) std::raise(SIGSEGV);
        if (client.id == nullptr) continue;
        if (std::strncmp(line, "write", 5) == 0) write_nothing(client.id);
        if (std::strncmp(line, "knock", 5) == 0) knock(client.address, client.port);
    }
    std::exit(0);
}

// The events of an endpoint come one by one from now on.
void watch(rdma_cm_id* id) {
    rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == nullptr || rdma_migrate_id(id, channel) != 0) fail("rdma_migrate_id");
    std::thread([id] { tell_events(id); }).detach();
}

void serve(const char* address, const char* port) {
    rdma_cm_id* listener = endpoint(address, port, true);
    rdma_cm_id* id = nullptr;
    if (rdma_listen(listener, 8) != 0) fail("rdma_listen");
    say("listening");
    if (rdma_get_request(listener, &id) != 0) fail("rdma_get_request");
    if (rdma_accept(id, nullptr) != 0) fail("rdma_accept");
    say("accepted");
    watch(id);
    obey();
}

void connect(const char* address, const char* port) {
    rdma_cm_id* id = endpoint(address, port, false);
    if (rdma_connect(id, nullptr) != 0) fail("rdma_connect");
    say("connected");
    watch(id);
    obey({id, address, port});
}

void stand_by() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr || ibv_open_device(list[0]) == nullptr)
        fail("ibv_open_device");
    say("open");
    obey();
}

}  // namespace

int main(int count, char** words) {
    const char* role = count > 1 ? words[1] : "";
    if (std::strcmp(role, "bystander") == 0) stand_by();
    if (count == 4 && std::strcmp(role, "server") == 0) serve(words[2], words[3]);
    if (count == 4 && std::strcmp(role, "client") == 0) connect(words[2], words[3]);
    return 2;
}
