// For tests: far memory whose copies end when the test says so, and an end that has some beside its
// host memory.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <new>
#include <vector>

#include "transport/machine_fixture.hpp"

namespace feroce::transport::far_test {

inline constexpr std::uint64_t kBase = std::uint64_t{1} << 46;  // Mapped nowhere.

// Copies are made when the test lets them.
class ManualMemory final : public mem::FarMemory {
public:
    explicit ManualMemory(std::size_t size) : bytes(size) {}
    std::unique_ptr<mem::Staging> stage(std::uint32_t size) override {
        if (is_short) throw std::bad_alloc();
        return mem::heap_staging(size);
    }
    void start(const mem::Copy& copy) override {
        if (room == 0) throw std::bad_alloc();
        --room;
        started.push_back(copy);
    }
    void close() override {}
    void finish_one(bool good = true) {
        ASSERT_FALSE(started.empty());
        const mem::Copy copy = started.front();
        started.pop_front();
        const ByteSpan far = ByteSpan(bytes).subspan(copy.address - kBase, copy.staging.size());
        if (good && copy.direction == mem::CopyDirection::Gather)
            std::copy(far.begin(), far.end(), copy.staging.begin());
        if (good && copy.direction == mem::CopyDirection::Deliver)
            std::copy(copy.staging.begin(), copy.staging.end(), far.begin());
        copy.listener->copy_done(copy.token, good);
    }

    std::vector<std::byte> bytes;
    std::deque<mem::Copy> started;
    std::size_t room = ~std::size_t{0};  // Copies that may still be started.
    bool is_short = false;               // There is no memory for staging.
};

// An end with far memory beside its host memory.
class FarEnd final : public End, public mem::CopyListener {
public:
    static constexpr std::size_t kFarBytes = 600'000;

    static constexpr Qkey kQkey{0x1111'1111};

    FarEnd(QpType type, Qpn qpn) : End(type, qpn) {
        services.copies = &copies;
        mem::RegionSpec spec{pd, reinterpret_cast<void*>(kBase), kFarBytes, kBase,
                             mem::AccessSet(15)};
        spec.far = far;
        far_keys = *memory.register_region(spec);
        change_attributes([](QpAttributes& attributes) {
            attributes.path_mtu = 1024;
            attributes.read_atomic_max = attributes.dest_read_atomic_max = 4;
            attributes.timeout = 14;
            attributes.access = mem::AccessSet(15);
            attributes.qkey = kQkey;
        });
        qp.set_window(&window);
        run();
    }
    void copy_done(mem::CopyToken token, bool good) override {
        if (copies.finish(token, good) == nullptr) return;
        qp.machine().on_copies();
        qp.finish_flush(Instant{});
    }
    mem::Sge far_sge(std::uint64_t offset, std::uint32_t length) const {
        return {kBase + offset, length, far_keys.lkey};
    }
    // All of the far memory by other keys.
    mem::RegionKeys other_keys() {
        mem::RegionSpec spec{pd, reinterpret_cast<void*>(kBase), kFarBytes, kBase,
                             mem::AccessSet(15)};
        spec.far = far;
        return *memory.register_region(spec);
    }
    void fill_far(unsigned seed) {
        for (std::size_t i = 0; i < far->bytes.size(); ++i)
            far->bytes[i] = static_cast<std::byte>(seed + i * 13 + i / 251);
    }
    bool release() { return held.release() == nullptr; }
    // A window on all of a far region.
    RKey bind_window() {
        mem::RegionSpec spec{pd, reinterpret_cast<void*>(kBase), kFarBytes, kBase,
                             mem::Access::LocalWrite | mem::Access::MwBind};
        spec.far = far;
        const RKey free = *memory.allocate_window(pd, mem::WindowType::Type2);
        const mem::WindowBind bind{free,
                                   memory.register_region(spec)->lkey,
                                   kBase,
                                   kFarBytes,
                                   mem::Access::RemoteWrite,
                                   RKey{free.raw + 1},
                                   qp.qpn(),
                                   pd};
        EXPECT_EQ(memory.bind_window(bind), mem::BindOutcome::Bound);
        return mem::Memory::bound_key(free, bind.new_rkey);
    }
    // Other memory under the same key.
    void exchange_memory(bool for_far) {
        mem::RegionSpec spec{pd, for_far ? reinterpret_cast<void*>(kBase) : instead.data(),
                             kFarBytes, kBase, mem::AccessSet(15)};
        if (for_far) spec.far = far;
        ASSERT_TRUE(memory.reregister_region(far_keys.lkey, {.translation = true}, spec));
    }

    SendWindow window{{.initial_bytes = 2 * 1024 * 1024}};
    Copies copies{*this};
    std::shared_ptr<ManualMemory> far = std::make_shared<ManualMemory>(kFarBytes);
    mem::RegionKeys far_keys;
    std::vector<std::byte> instead = std::vector<std::byte>(kFarBytes);
};

}  // namespace feroce::transport::far_test
