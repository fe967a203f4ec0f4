#include "verbs/lint_places.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "verbs/lint_symbols.hpp"

namespace feroce::verbs {
namespace {

struct Range {
    std::uintptr_t begin = 0, end = 0;
    bool holds(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return at >= begin && at < end;
    }
};

// The library that this function is in; of all its segments.
Range own_library() {
    Range out;
    const auto look = [](dl_phdr_info* info, std::size_t, void* into) {
        Range range{~std::uintptr_t{0}, 0};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            range.begin = std::min(range.begin, info->dlpi_addr + segment.p_vaddr);
            range.end = std::max(range.end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
        }
        if (!range.holds(reinterpret_cast<void*>(&own_library))) return 0;
        *static_cast<Range*>(into) = range;
        return 1;
    };
    ::dl_iterate_phdr(look, &out);
    return out;
}

const char* base_name(const char* path) {
    const char* slash = std::strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

}  // namespace

Trace trace_here() {
    constexpr int kOwnFramesMax = 12;
    static const Range own = own_library();
    std::array<void*, Trace::kFrames + kOwnFramesMax> all{};
    const int count = ::backtrace(all.data(), static_cast<int>(all.size()));
    int first = 0;
    while (first < count && own.holds(all[static_cast<std::size_t>(first)])) ++first;
    if (first == count) first = 0;  // Linked into the program, as our own tests are.
    Trace out;
    for (int i = first; i < count && out.count < Trace::kFrames; ++i)
        out.frames[static_cast<std::size_t>(out.count++)] = all[static_cast<std::size_t>(i)];
    return out;
}

lint::Place Places::number(const Trace& trace) {
    if (const auto found = numbers_.find(trace); found != numbers_.end()) return found->second;
    if (traces_.size() >= kPlacesMax) return 0;
    traces_.push_back(trace);
    const auto place = static_cast<lint::Place>(traces_.size());
    numbers_.emplace(trace, place);
    return place;
}

std::string Places::describe(lint::Place place) const {
    if (place == 0) return "    (the place is not known)\n";
    std::string out;
    const Trace& trace = traces_[place - 1];
    for (int i = 0; i < trace.count; ++i) {
        // Before the return address: the call may be the last instruction of its function.
        const auto* at = static_cast<const char*>(trace.frames[static_cast<std::size_t>(i)]) - 1;
        Dl_info info{};
        if (::dladdr(at, &info) == 0 || info.dli_fname == nullptr) continue;
        const auto offset = static_cast<std::uint64_t>(at - static_cast<char*>(info.dli_fbase));
        std::string function = function_at(info.dli_fname, offset);
        if (function.empty() && info.dli_sname != nullptr) function = readable(info.dli_sname);
        out += "    #" + std::to_string(i) + " " + (function.empty() ? "?" : function) + " (" +
               base_name(info.dli_fname) + "+" + lint::hex(offset) + ")\n";
        if (function == "main") break;
    }
    return out;
}

}  // namespace feroce::verbs
