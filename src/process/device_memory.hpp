// DeviceMemory: ordinary memory that only the device and two copy functions reach, in blocks with
// numbers by which other contexts of this process find them. A block lives as long as an object
// holds it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"

namespace feroce::process {

class DeviceBlock {
public:
    DeviceBlock() = default;  // Empty.
    DeviceBlock(std::uint32_t handle, std::size_t length, std::size_t alignment);

    std::uint32_t handle() const { return handle_; }
    bool holds(std::uint64_t offset, std::size_t length) const;
    // Within holds(). By words, as on devices that have such memory for real: both numbers are
    // multiples of four. False if that is not so, or the program's memory is not there.
    bool copy_in(std::uint64_t offset, ByteView from);
    bool copy_out(std::uint64_t offset, ByteSpan to) const;
    std::byte* at(std::uint64_t offset) { return start_ + offset; }

private:
    std::uint32_t handle_ = 0;
    std::vector<std::byte> bytes_;
    std::byte* start_ = nullptr;
    std::size_t length_ = 0;
};

class DeviceMemory {
public:
    std::shared_ptr<DeviceBlock> allocate(std::size_t length, std::size_t alignment);
    std::shared_ptr<DeviceBlock> find(std::uint32_t handle);  // Null if there is none.
    // An empty one, for objects that are no more. Takes no lock and no memory.
    const std::shared_ptr<DeviceBlock>& none() const { return none_; }

private:
    const std::shared_ptr<DeviceBlock> none_ = std::make_shared<DeviceBlock>();
    std::mutex mutex_;
    std::map<std::uint32_t, std::weak_ptr<DeviceBlock>> by_handle_;
    std::uint32_t next_handle_ = 1;
};

}  // namespace feroce::process
