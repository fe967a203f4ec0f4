// One of the two processes: a queue pair, and the same buffer in host and in device memory.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "gpu_calls.hpp"

namespace gpu {

// Bytes before and behind what is transferred, which must not change.
inline constexpr std::uint64_t kMargin = 256;

[[noreturn]] void fail(const char* what, const char* which);

// A part of the buffer in either memory.
struct Piece {
    bool on_gpu = false;
    std::uint64_t at = 0;
    std::uint64_t length = 0;
};

class Peer {
public:
    // `dmabuf`: the device memory is registered by a descriptor that the driver gives of it.
    Peer(const Gpu& gpu, std::uint64_t bytes, int socket, bool dmabuf);
    ~Peer();
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    void note(unsigned number, const char* what, std::uint64_t size);  // For messages.
    void meet();                      // Returns when the other one has come here too.
    bool agree(bool go, bool first);  // What the first of the two says, for both.
    void fill(const std::vector<Piece>& list, unsigned seed);
    void erase(const std::vector<Piece>& list);  // And what is around it.
    void verify(const std::vector<Piece>& list, unsigned seed);
    void post(ibv_wr_opcode code, const std::vector<Piece>& list, const Piece& target);
    void post_receive(const std::vector<Piece>& list);
    void expect_completion(const char* what);

private:
    struct Place {  // What the peers tell each other.
        std::uint32_t qpn;
        ibv_gid gid;
        std::uint64_t host, device;
        std::uint32_t host_key, device_key;
    };
    ibv_mr* register_device(std::uint64_t bytes, bool dmabuf) const;
    void connect();
    std::vector<ibv_sge> entries(const std::vector<Piece>& list) const;
    void look(const Piece& piece, std::uint64_t before, std::uint64_t behind);
    void send_all(const void* from, std::size_t bytes) const;
    void receive_all(void* to, std::size_t bytes) const;
    [[noreturn]] void wrong(const char* what, std::uint64_t where) const;

    const Gpu& gpu_;
    const int socket_;
    std::vector<unsigned char> host_;
    std::uint64_t device_ = 0;
    std::vector<unsigned char> pattern_, seen_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_qp* qp_ = nullptr;
    ibv_mr* host_mr_ = nullptr;
    ibv_mr* device_mr_ = nullptr;
    Place other_{};
    unsigned number_ = 0;
    const char* what_ = "";
    std::uint64_t size_ = 0;
};

}  // namespace gpu
