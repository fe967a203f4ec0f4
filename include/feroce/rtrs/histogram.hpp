// Latencies, counted in buckets that grow with the value: eight per power of two, so a percentile
// is right to within an eighth. Recording is two additions and allocates nothing.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace feroce::rtrs {

class Histogram {
public:
    void record(std::chrono::nanoseconds latency) {
        const auto value = static_cast<std::uint64_t>(latency.count() < 0 ? 0 : latency.count());
        ++buckets_[bucket_of(value)];
        ++count_;
    }
    std::uint64_t count() const { return count_; }

    // The upper end of the bucket in which the given share (0 to 1) of the values is reached.
    std::chrono::nanoseconds percentile(double share) const {
        const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < kBuckets; ++i) {
            seen += buckets_[i];
            if (seen > wanted || (seen == count_ && count_ != 0)) return upper_end(i);
        }
        return {};
    }
    void merge(const Histogram& other) {
        for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
        count_ += other.count_;
    }

private:
    static constexpr unsigned kSubBits = 3;
    static constexpr std::size_t kSubs = 1 << kSubBits;
    static constexpr unsigned kTopBits = 40;  // Eighteen minutes; longer ones count as that.
    static constexpr std::size_t kBuckets = (kTopBits - kSubBits + 1) * kSubs;

    static std::size_t bucket_of(std::uint64_t value) {
        if (value < kSubs) return value;
        const auto shift = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
        const std::size_t bucket = (shift + 1) * kSubs + ((value >> shift) - kSubs);
        return bucket < kBuckets ? bucket : kBuckets - 1;
    }
    static std::chrono::nanoseconds upper_end(std::size_t bucket) {
        if (bucket < kSubs) return std::chrono::nanoseconds(bucket);
        const std::size_t shift = bucket / kSubs - 1;
        const std::uint64_t next = (bucket % kSubs + kSubs + 1) << shift;
        return std::chrono::nanoseconds(static_cast<std::int64_t>(next - 1));
    }

    std::array<std::uint64_t, kBuckets> buckets_{};
    std::uint64_t count_ = 0;
};

}  // namespace feroce::rtrs
