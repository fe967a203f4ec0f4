// Far memory that another thread exchanges while an engine starts copies: ibv_rereg_mr takes no
// shard's lock before it changes the table. Here and not in transport/, whose tests have one
// thread.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "transport/copies.hpp"
#include "transport/machine_fixture.hpp"

namespace feroce::device {
namespace {
namespace far_exchange_test {

constexpr std::uint32_t kLength = 4096;
constexpr std::uint64_t kIova = 0x10000;

// Knows which addresses are its own. A copy is over as soon as it is started.
class PlacedMemory final : public mem::FarMemory {
public:
    explicit PlacedMemory(std::uint64_t begin) : begin_(begin) {}
    std::unique_ptr<mem::Staging> stage(std::uint32_t size) override {
        return mem::heap_staging(size);
    }
    void start(const mem::Copy& copy) override {
        if (copy.address < begin_ || copy.address - begin_ + copy.staging.size() > kLength)
            ++strangers;
        copy.listener->copy_done(copy.token, true);
    }
    void close() override {}
    void* address() const { return reinterpret_cast<void*>(begin_); }
    int strangers = 0;  // Copies of other memory.

private:
    std::uint64_t begin_;
};

class Listener final : public mem::CopyListener {
public:
    void copy_done(mem::CopyToken token, bool good) override { copies.finish(token, good); }
    transport::Copies copies{*this};
};

class ExchangedFarMemory : public testing::Test {
protected:
    ExchangedFarMemory() { end.services.copies = &listener.copies; }
    mem::RegionSpec spec(const std::shared_ptr<PlacedMemory>& far) const {
        mem::RegionSpec out{end.pd, far->address(), kLength, kIova, mem::AccessSet(15)};
        out.far = far;
        return out;
    }
    // While another thread exchanges the memory of the key.
    void start_copies(bool remote) {
        const LKey key = end.memory.register_region(spec(one))->lkey;
        std::atomic<bool> stop = false;
        std::thread exchanger([&] {
            while (!stop.load(std::memory_order_relaxed))
                for (const auto& far : {other, one})
                    (void)end.memory.reregister_region(key, {.translation = true}, spec(far));
        });
        const transport::FarList list{end.pd, {}, remote, {{kIova + 64, 128, key}}};
        for (int i = 0; i < kRounds && one->strangers + other->strangers == 0; ++i) {
            transport::CopyGroupPtr group;
            // A slot that is being changed has no key for a moment.
            if (make_group(end.qp, list, 0, 128, group) != mem::Fault::None) continue;
            if (start_gather(end.qp, list, 0, 128, group) == mem::Fault::None) ++started;
        }
        stop = true;
        exchanger.join();
        EXPECT_GT(started, 0);
        EXPECT_EQ(one->strangers + other->strangers, 0);
    }

    static constexpr int kRounds = 100'000;
    transport::End end{transport::QpType::Rc, Qpn{17}};
    Listener listener;
    std::shared_ptr<PlacedMemory> one = std::make_shared<PlacedMemory>(std::uint64_t{1} << 46);
    std::shared_ptr<PlacedMemory> other = std::make_shared<PlacedMemory>(std::uint64_t{1} << 45);
    int started = 0;
};

// Else a copy would go to the address of one memory in the other.
TEST_F(ExchangedFarMemory, GivesAPlaceAndItsMemoryOfOneRegistration) {
    start_copies(false);
}

TEST_F(ExchangedFarMemory, DoesSoForAPeersKey) {
    start_copies(true);
}

}  // namespace far_exchange_test
}  // namespace
}  // namespace feroce::device
