// The copies themselves, without an engine: every byte, in any order, with failures, beside a
// kernel that spins on the default stream.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "cuda/devices.hpp"
#include "fake_driver.hpp"
#include "port/real_host.hpp"

namespace feroce::gpu_test::copier_test {
namespace {

using fake_cuda::Kind;
using mem::CopyDirection;

class Results final : public mem::CopyListener {
public:
    void copy_done(mem::CopyToken token, bool good) override {
        const std::lock_guard hold(mutex_);
        EXPECT_TRUE(done_.emplace(token, good).second) << "told twice";
        changed_.notify_all();
    }
    bool wait(mem::CopyToken token) {
        std::unique_lock hold(mutex_);
        EXPECT_TRUE(changed_.wait_for(hold, std::chrono::seconds(60),
                                      [&] { return done_.count(token) > 0; }));
        return done_[token];
    }
    std::size_t count() {
        const std::lock_guard hold(mutex_);
        return done_.size();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<mem::CopyToken, bool> done_;
};

class CopierTest : public FakeDriverTest {
protected:
    CopierTest() : host_({}), devices_(host_) {}

    std::shared_ptr<mem::FarMemory> memory(const DeviceBuffer& buffer) {
        const auto found = devices_.find(buffer.address(), buffer.size());
        EXPECT_TRUE(found.has_value());
        EXPECT_NE(*found, nullptr);
        return *found;
    }
    // Starts one copy; its staging is kept until the test ends.
    mem::CopyToken start(mem::FarMemory& far, CopyDirection direction, std::uint64_t address,
                         std::span<const unsigned char> bytes) {
        auto staging = far.stage(static_cast<std::uint32_t>(bytes.size()));
        if (direction == CopyDirection::Deliver)
            std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(),
                        staging->bytes().data());
        const mem::CopyToken token = ++last_;
        far.start({token, direction, address, staging->bytes(), &results_});
        staged_[token] = std::move(staging);
        return token;
    }
    std::vector<unsigned char> fetch(mem::FarMemory& far, const DeviceBuffer& buffer) {
        std::vector<unsigned char> out;
        for (std::size_t at = 0; at < buffer.size(); at += mem::FarMemory::kPieceBytes) {
            const std::vector<unsigned char> room(
                std::min<std::size_t>(buffer.size() - at, mem::FarMemory::kPieceBytes));
            const mem::CopyToken token =
                start(far, CopyDirection::Gather, buffer.address() + at, room);
            EXPECT_TRUE(results_.wait(token));
            const ByteSpan got = staged_[token]->bytes();
            const auto* bytes = reinterpret_cast<const unsigned char*>(got.data());
            out.insert(out.end(), bytes, bytes + got.size());
            staged_.erase(token);
        }
        return out;
    }

    port::RealHost host_;
    cuda::Devices devices_;
    Results results_;
    mem::CopyToken last_ = 0;
    std::map<mem::CopyToken, std::unique_ptr<mem::Staging>> staged_;
};

TEST_F(CopierTest, BytesComeAndGo) {
    for (const Kind kind : {Kind::Device, Kind::Mapped}) {
        const DeviceBuffer buffer(1'000'000, kind);
        const std::vector<unsigned char> bytes = pattern(buffer.size(), 7);
        const auto far = memory(buffer);
        for (std::size_t at = 0; at < bytes.size(); at += 50'000)
            EXPECT_TRUE(results_.wait(start(*far, CopyDirection::Deliver, buffer.address() + at,
                                            std::span(bytes).subspan(at, 50'000))));
        EXPECT_EQ(buffer.contents(), bytes);
        EXPECT_EQ(fetch(*far, buffer), bytes);
        far->close();
    }
}

TEST_F(CopierTest, ManyCopiesOfAllSizesAreOverWhenTheyAreSaidToBe) {
    fake().delay(0, 300);
    const DeviceBuffer buffer(8 << 20);
    const auto far = memory(buffer);
    std::vector<unsigned char> expected(buffer.size());
    std::mt19937 chance(3);
    std::vector<mem::CopyToken> tokens;
    // Pieces beside each other, in any order. More than there is pinned memory for.
    std::vector<std::pair<std::size_t, std::size_t>> pieces;
    for (std::size_t at = 0; at < buffer.size();) {
        const std::size_t size =
            std::min<std::size_t>(buffer.size() - at, chance() % 4 == 0 ? 1 + chance() % (256 << 10)
                                                                        : 1 + chance() % 9000);
        pieces.emplace_back(at, size);
        at += size;
    }
    std::shuffle(pieces.begin(), pieces.end(), chance);
    for (const auto& [at, size] : pieces) {
        const std::vector<unsigned char> bytes = pattern(size, static_cast<unsigned>(at));
        std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
        tokens.push_back(start(*far, CopyDirection::Deliver, buffer.address() + at, bytes));
    }
    for (const mem::CopyToken token : tokens) EXPECT_TRUE(results_.wait(token));
    EXPECT_EQ(buffer.contents(), expected);
    far->close();
}

// Far more at once than there are pinned pieces: what is staged on the heap goes by a detour.
TEST_F(CopierTest, HeapStagingIsNeverCopiedFrom) {
    fake().delay(0, 100);
    constexpr std::size_t kPiece = mem::FarMemory::kPieceBytes;
    constexpr std::size_t kPieces = 200;
    const DeviceBuffer buffer(kPieces * kPiece);
    const auto far = memory(buffer);
    std::vector<unsigned char> bytes = pattern(buffer.size(), 5);
    for (std::size_t i = 0; i < kPieces; ++i)
        start(*far, CopyDirection::Deliver, buffer.address() + i * kPiece,
              std::span(bytes).subspan(i * kPiece, kPiece));
    far->close();
    EXPECT_EQ(results_.count(), kPieces);
    EXPECT_EQ(buffer.contents(), bytes);
    // And back.
    std::vector<mem::CopyToken> tokens;
    staged_.clear();
    for (std::size_t i = 0; i < kPieces; ++i)
        tokens.push_back(start(*far, CopyDirection::Gather, buffer.address() + i * kPiece,
                               std::span(bytes).subspan(i * kPiece, kPiece)));
    for (std::size_t i = 0; i < kPieces; ++i) {
        EXPECT_TRUE(results_.wait(tokens[i]));
        EXPECT_EQ(std::memcmp(staged_[tokens[i]]->bytes().data(), &bytes[i * kPiece], kPiece), 0);
    }
    far->close();
}

// What the last one held is in the caches, from where the GPU's next write would have to take it.
TEST_F(CopierTest, PiecesOfStagingTakeTurns) {
    const DeviceBuffer buffer(1 << 20);
    const auto far = memory(buffer);
    const std::byte* const first = far->stage(100'000)->bytes().data();
    EXPECT_NE(far->stage(100'000)->bytes().data(), first);
    far->close();
}

TEST_F(CopierTest, AKernelThatSpinsHoldsNothingUp) {
    const DeviceBuffer buffer(1 << 20);
    const auto far = memory(buffer);
    fake().spin(true);
    const std::vector<unsigned char> bytes = pattern(100'000, 9);
    EXPECT_TRUE(results_.wait(start(*far, CopyDirection::Deliver, buffer.address(), bytes)));
    fake().spin(false);
    EXPECT_EQ(std::memcmp(buffer.contents().data(), bytes.data(), bytes.size()), 0);
    far->close();
}

TEST_F(CopierTest, FailuresAreToldOnceAndPass) {
    const DeviceBuffer buffer(1 << 20);
    const auto far = memory(buffer);
    const std::vector<unsigned char> bytes = pattern(300, 1);
    const auto deliver = [&] {
        return results_.wait(start(*far, CopyDirection::Deliver, buffer.address(), bytes));
    };
    fake().fail_calls(1);
    EXPECT_FALSE(deliver());
    fake().fail_copies(1);
    EXPECT_FALSE(deliver());
    EXPECT_TRUE(deliver());
    far->close();
}

TEST_F(CopierTest, FreedMemoryFailsEvenIfOtherMemoryTakesItsPlace) {
    auto buffer = std::make_unique<DeviceBuffer>(1 << 20);
    const std::uint64_t address = buffer->address();
    const auto far = memory(*buffer);
    const std::vector<unsigned char> bytes = pattern(300, 1);
    buffer.reset();
    EXPECT_FALSE(results_.wait(start(*far, CopyDirection::Deliver, address, bytes)));
    // The address that was just let go of is the next to be given.
    const DeviceBuffer heir(1 << 20);
    if (heir.address() == address) {
        EXPECT_FALSE(results_.wait(start(*far, CopyDirection::Deliver, address, bytes)));
        EXPECT_EQ(heir.contents()[0], 0);
    }
    far->close();
}

TEST_F(CopierTest, WhatTheCpuReachesIsNotFar) {
    const DeviceBuffer managed(4096, Kind::Managed), mapped(4096, Kind::Host);
    int here = 0;
    for (const std::uint64_t address :
         {managed.address(), mapped.address(), reinterpret_cast<std::uint64_t>(&here)}) {
        const auto found = devices_.find(address, 4);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(*found, nullptr);
    }
    const DeviceBuffer device(4096);
    EXPECT_FALSE(devices_.find(device.address(), 1 << 30).has_value());
}

}  // namespace
}  // namespace feroce::gpu_test::copier_test
