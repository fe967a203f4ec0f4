// Next: the function of libc that one of ours stands before. Looked up when the library is loaded;
// a call that comes earlier looks it up itself, which finds the same. One that libc does not have
// is looked up once as well: a failing dlsym() allocates, and replaces the program's dlerror().
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace feroce::preload {

template <class Function>
class Next {
public:
    constexpr explicit Next(const char* name) : name_(name) {}

    template <class... Arguments>
    auto operator()(Arguments... arguments) {
        return get()(arguments...);
    }
    Function* get() {
        // relaxed: a thread that sees neither finds the same again.
        Function* found = function_.load(std::memory_order_relaxed);
        if (found != nullptr || absent_.load(std::memory_order_relaxed)) return found;
        found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
        function_.store(found, std::memory_order_relaxed);
        if (found == nullptr) {
            absent_.store(true, std::memory_order_relaxed);
            ::dlerror();  // Taken, so that the program does not see it.
        }
        return found;
    }

private:
    const char* name_;
    std::atomic<Function*> function_{nullptr};
    std::atomic<bool> absent_{false};
};

void look_up_stat_functions();

}  // namespace feroce::preload
