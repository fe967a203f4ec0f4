// wireprobe makes each wire operation once over rdma_cm, with contents and order fixed by the name
// of the probe, and prints what it sees. Nothing it prints depends on time or on numbers a device
// hands out: what a client or a server prints on Feroce and on rxe can be compared line by line.
// The name travels in the REQ's private data, the server's buffer in the REP's. Byte i of a buffer
// to be sent is i % 251, of one to be read 250 - i % 251.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstdint>
#include <string_view>

namespace wireprobe {

inline constexpr std::size_t kBuffer = 16384;
inline constexpr int kReceives = 16;
inline constexpr std::size_t kReceive = 4096;
inline constexpr int kWindows = 2;
inline constexpr std::size_t kName = 16;

// Private data of the REP, in network byte order.
struct Target {
    std::uint64_t address;
    std::uint32_t rkey;
    std::uint32_t length;
};

// Static, because the programs are short and buffers must outlive every registration.
struct Buffers {
    alignas(8) std::uint8_t local[kBuffer];
    alignas(8) std::uint8_t remote[kBuffer];
    alignas(8) std::uint8_t receive[kReceives][kReceive];
};
extern Buffers buffers;

[[noreturn]] void die(const char* what);
void fill();
rdma_addrinfo* resolve(const char* address, const char* port, bool passive, bool datagram);
ibv_qp_init_attr queue_pair(bool datagram);
ibv_mr* register_memory(rdma_cm_id* id, void* start, std::size_t bytes, int access);

// The next event, if one comes in `milliseconds`; -1 if not.
int next_event(rdma_cm_id* id, int milliseconds);
// Says ready, waits until the peer is found to be gone, by an event or by a request that fails, and
// says which. False if it is not found.
bool outlive_peer(rdma_cm_id* id);

int client(const char* address, const char* port, std::string_view probe);
int datagram_client(const char* address, const char* port);
[[noreturn]] void serve(const char* address, const char* port, bool datagram);

}  // namespace wireprobe
