// The fake driver in this process, and a buffer in its memory.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "fake_cuda.hpp"

namespace feroce::gpu_test {

inline const fake_cuda::Controls& fake() {
    static const fake_cuda::Controls* const controls = [] {
        void* library = ::dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
        const auto entrance =
            reinterpret_cast<fake_cuda::Entrance>(::dlsym(library, "fake_cuda_controls"));
        return entrance();
    }();
    return *controls;
}

class DeviceBuffer {
public:
    explicit DeviceBuffer(std::size_t size, fake_cuda::Kind kind = fake_cuda::Kind::Device)
        : size_(size), address_(fake().allocate(size, kind)) {}
    ~DeviceBuffer() { release(); }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    void release() {
        if (address_ != 0) fake().release(address_);
        address_ = 0;
    }
    std::uint64_t address() const { return address_; }
    std::size_t size() const { return size_; }
    void* pointer() const { return reinterpret_cast<void*>(address_); }
    std::vector<unsigned char> contents() const {
        std::vector<unsigned char> out(size_);
        fake().load(out.data(), address_, size_);
        return out;
    }
    void fill(const std::vector<unsigned char>& bytes, std::size_t at = 0) const {
        fake().store(address_ + at, bytes.data(), bytes.size());
    }

private:
    std::size_t size_;
    std::uint64_t address_;
};

inline std::vector<unsigned char> pattern(std::size_t size, unsigned seed) {
    std::vector<unsigned char> out(size);
    std::uint32_t x = seed * 2654435761u + 1;
    for (unsigned char& byte : out) {
        x = x * 1664525u + 1013904223u;
        byte = static_cast<unsigned char>(x >> 24);
    }
    return out;
}

// Leaves the driver as it was, and demands that nothing was done to it that a real one punishes.
class FakeDriverTest : public testing::Test {
protected:
    FakeDriverTest() : violations_(fake().violations()) {}
    ~FakeDriverTest() override {
        fake().delay(0, 0);
        fake().fail_calls(0);
        fake().fail_copies(0);
        fake().spin(false);
        fake().pause(false);
        EXPECT_EQ(fake().violations(), violations_) << fake().last_violation();
    }

private:
    const unsigned violations_;
};

}  // namespace feroce::gpu_test
