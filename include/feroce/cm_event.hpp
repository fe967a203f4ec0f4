// An event of rdma_cm as the loop hands it on: a copy, so that the event is acknowledged before
// anybody acts on it and an id may end in its own event.
#pragma once

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace feroce::rdma {

// What can travel as it is: no padding, which would show the peer what lay on the stack.
template <class T>
concept PlainBytes = std::has_unique_object_representations_v<T> && sizeof(T) <= 256;

// What ends tell each other while they connect. IBTA leaves a program 56 bytes in a request, 196 in
// a reply and 148 in a rejection; it pads with zeros, so a format must say its own length.
class PrivateData {
public:
    static constexpr std::size_t kMost = 256;

    PrivateData() = default;
    PrivateData(std::span<const std::byte> bytes) : size_(std::min(bytes.size(), kMost)) {
        std::copy_n(bytes.begin(), size_, bytes_.begin());
    }
    // Without a span: clang 14 and 15 for arm64 move one of a coroutine's local out of a loop with
    // co_await, where it names a stack that is gone (llvm-project#149604; clang 16 does not).
    template <PlainBytes T>
    static PrivateData of(const T& value) {
        PrivateData out;
        out.size_ = sizeof value;
        std::memcpy(out.bytes_.data(), &value, sizeof value);
        return out;
    }

    std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
    // A value that of() made at the other end, or a similar machine; zeros where bytes lack.
    template <PlainBytes T>
    T as() const {
        T value;
        std::memcpy(&value, bytes_.data(), sizeof value);
        return value;
    }

private:
    std::array<std::byte, kMost> bytes_{};
    std::size_t size_ = 0;
};

struct CmEvent {
    rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
    int status = 0;            // An errno, negative or not, or the reason of a rejection.
    rdma_cm_id* id = nullptr;  // For a request: the new one, owned by the handler of the event.
    rdma_conn_param parameters{};
    PrivateData data;
};

// The context of an rdma_cm_id on a loop's channel.
class CmHandler {
public:
    virtual void on_cm_event(const CmEvent& event) = 0;

protected:
    ~CmHandler() = default;
};

}  // namespace feroce::rdma
