// Devices: the entrance of this room. Says whether an address is a GPU's, and makes what is needed
// to reach it: one Copier for each CUDA context, kept until the process ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/result.hpp"
#include "cuda/copier.hpp"
#include "host/host.hpp"
#include "mem/far_memory.hpp"

namespace feroce::cuda {

class Devices {
public:
    explicit Devices(host::Host& host) : host_(host) {}

    // Null: the CPU reaches the memory, or nothing is known of it. Without libcuda in the process
    // it makes no system call. May wait for the program's kernels, the first time in a context.
    Result<std::shared_ptr<mem::FarMemory>> find(std::uint64_t address, std::uint64_t length);

private:
    Result<Copier*> copier_for(const Driver& driver, Context context);

    host::Host& host_;
    std::mutex mutex_;  // Guards the next, and is held while a Copier is made.
    // By context and the driver's number for it: another context may get an old one's address.
    std::map<std::pair<Context, std::uint64_t>, std::unique_ptr<Copier>> copiers_;
};

}  // namespace feroce::cuda
