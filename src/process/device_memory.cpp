#include "process/device_memory.hpp"

#include "mem/touch.hpp"

namespace feroce::process {

DeviceBlock::DeviceBlock(std::uint32_t handle, std::size_t length, std::size_t alignment)
    : handle_(handle), bytes_(length + alignment), length_(length) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    start_ = bytes_.data() + (alignment - address % alignment) % alignment;
}

bool DeviceBlock::holds(std::uint64_t offset, std::size_t length) const {
    return offset <= length_ && length <= length_ - offset;
}

bool DeviceBlock::copy_in(std::uint64_t offset, ByteView from) {
    if (offset % 4 != 0 || from.size() % 4 != 0 || !holds(offset, from.size())) return false;
    return mem::write_memory({start_ + offset, from.size()}, from);
}

bool DeviceBlock::copy_out(std::uint64_t offset, ByteSpan to) const {
    if (offset % 4 != 0 || to.size() % 4 != 0 || !holds(offset, to.size())) return false;
    return mem::read_memory({start_ + offset, to.size()}, to);
}

std::shared_ptr<DeviceBlock> DeviceMemory::allocate(std::size_t length, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    std::erase_if(by_handle_, [](const auto& entry) { return entry.second.expired(); });
    auto block = std::make_shared<DeviceBlock>(next_handle_++, length, alignment);
    by_handle_[block->handle()] = block;
    return block;
}

std::shared_ptr<DeviceBlock> DeviceMemory::find(std::uint32_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(handle);
    return found == by_handle_.end() ? nullptr : found->second.lock();
}

}  // namespace feroce::process
