// Buffers: the registered memory of one stream. Three registrations, so that the peer can write the
// receive ring and the targets and nothing else.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "rsocket/stream.hpp"

namespace feroce::rsockets {

class Buffers {
public:
    struct Sizes {
        std::size_t send_ring = 0;
        std::size_t receive_ring = 0;
        std::uint32_t mappings = 0;
    };

    static Result<std::unique_ptr<Buffers>> create(ibv_pd* pd, const Sizes& sizes);
    ~Buffers();
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    // Fills in what says where the memory is.
    void describe(StreamConfig& config) const;
    std::uint32_t send_key() const { return send_.region->lkey; }

private:
    struct Part {
        ByteSpan bytes;
        ibv_mr* region = nullptr;
    };

    Buffers() = default;
    Result<void> fill(Part& part, ibv_pd* pd, std::size_t size, int access);
    static void drop(Part& part);

    Part send_;
    Part receive_;
    Part targets_;
    std::uint32_t mappings_ = 0;
};

}  // namespace feroce::rsockets
