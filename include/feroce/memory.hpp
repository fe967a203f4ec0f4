// Owners of registered memory and of what guards it: protection domains, regions, windows, and
// buffers that bring their memory along.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "feroce/error.hpp"
#include "feroce/operation.hpp"
#include "feroce/region.hpp"

namespace feroce::rdma {

// What peers may do with memory. Local: nothing.
enum class Access : unsigned {
    Local = 0,
    RemoteRead = IBV_ACCESS_REMOTE_READ,
    RemoteWrite = IBV_ACCESS_REMOTE_WRITE,
    RemoteAtomic = IBV_ACCESS_REMOTE_ATOMIC,
    WindowBind = IBV_ACCESS_MW_BIND,
    Remote = RemoteRead | RemoteWrite | RemoteAtomic,
};
constexpr Access operator|(Access a, Access b) {
    return static_cast<Access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

namespace detail {

template <auto function>
struct CallTo {
    template <class T>
    void operator()(T* object) const {
        function(object);
    }
};
template <class T, auto function>
using Owned = std::unique_ptr<T, CallTo<function>>;

}  // namespace detail

// Keys are good only for connections of the same domain.
class ProtectionDomain {
public:
    static Result<ProtectionDomain> create(ibv_context* device);
    ibv_pd* raw() const { return pd_.get(); }

private:
    explicit ProtectionDomain(ibv_pd* pd) : pd_(pd) {}
    detail::Owned<ibv_pd, ibv_dealloc_pd> pd_;
};

// Registers memory of the program, which must outlive it.
class MemoryRegion {
public:
    static Result<MemoryRegion> create(ibv_pd* domain, std::span<std::byte> memory, Access access);

    LocalRegion local() const;    // Its first 4 GiB; take subregions of larger ones.
    RemoteRegion remote() const;  // What peers are told.
    ibv_mr* raw() const { return mr_.get(); }

private:
    explicit MemoryRegion(ibv_mr* mr) : mr_(mr) {}
    detail::Owned<ibv_mr, ibv_dereg_mr> mr_;
};

// Memory that is not there is an error, ENOMEM, and not an exception.
Result<std::byte*> allocate(std::pmr::memory_resource& memory, std::size_t bytes,
                            std::size_t alignment);

// Memory of its own, zeroed and registered; from Runtime::memory(), as all that is registered.
class Buffer {
public:
    static Result<Buffer> create(ibv_pd* domain, std::pmr::memory_resource& memory,
                                 std::size_t bytes, Access access);

    std::span<std::byte> bytes() const { return {memory_.get(), size()}; }
    std::byte* data() const { return memory_.get(); }
    std::size_t size() const { return memory_.get_deleter().size; }
    LocalRegion local() const { return region_.local(); }
    LocalRegion local(std::uint64_t offset, std::uint32_t count) const {
        return local().subregion(offset, count);
    }
    RemoteRegion remote() const { return region_.remote(); }
    const MemoryRegion& region() const { return region_; }

private:
    struct GiveBack {
        std::pmr::memory_resource* to = nullptr;
        std::size_t size = 0;
        void operator()(std::byte* memory) const;
    };
    using Memory = std::unique_ptr<std::byte, GiveBack>;
    Buffer(Memory memory, MemoryRegion region)
        : memory_(std::move(memory)), region_(std::move(region)) {}

    Memory memory_;
    MemoryRegion region_;  // Ends before its memory.
};

// A key of its own for a part of a region, made and taken back without another registration. Type
// 1: good for all connections of its domain.
class MemoryWindow {
public:
    static Result<MemoryWindow> create(ibv_pd* domain);

    // Gives the part a fresh key. The operation hears when it is bound; the key is good for work
    // that a peer is told of after that. An empty part takes the key back.
    Result<> bind(ibv_qp* through, const MemoryRegion& region, LocalRegion part, Access access,
                  Operation* done);
    RemoteRegion remote() const { return {address_, size_, mw_->rkey, 0}; }
    ibv_mw* raw() const { return mw_.get(); }

private:
    explicit MemoryWindow(ibv_mw* mw) : mw_(mw) {}
    struct Free {
        void operator()(ibv_mw* mw) const { ibv_dealloc_mw(mw); }
    };
    std::unique_ptr<ibv_mw, Free> mw_;
    std::uint64_t address_ = 0;
    std::uint64_t size_ = 0;
};

}  // namespace feroce::rdma
