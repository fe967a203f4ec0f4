// Which paths are not what they seem: /sys/class/infiniband*, /dev/infiniband and all below lie in
// a private tree that `feroce run` made. So does the version of the module nvidia_peermem, by which
// programs know that a device takes GPU memory, once the device has taken some in this process, and
// the places on the PCI bus that FEROCE_PCI invents. Everything else is left alone. No allocation,
// no lock, no libc call that is unsafe in a signal handler.
#pragma once

#include <cstddef>

namespace feroce::preload {

inline constexpr std::size_t kPathMax = 4096;

// Where the tree is. Set once, before the program runs; too long a path counts as none.
void set_root(const char* root);

// From now on the module is there. Any thread.
void show_gpu_module();

// A path and where it really leads. Lives on the caller's stack.
class Rewritten {
public:
    explicit Rewritten(const char* path);  // Null is handed on as it is.
    const char* path() const { return path_; }

private:
    const char* path_;
    char buffer_[kPathMax];
};

}  // namespace feroce::preload
