#include "base/gid.hpp"

#include <cstdio>

namespace feroce {

namespace {

struct ZeroRun {
    int start = -1;
    int length = 0;
};

// RFC 5952: the longest run of two or more zero groups is written as "::".
ZeroRun longest_zero_run(const std::array<unsigned, 8>& groups) {
    ZeroRun best;
    for (int i = 0; i < 8;) {
        int j = i;
        while (j < 8 && groups[static_cast<std::size_t>(j)] == 0) ++j;
        if (j - i >= 2 && j - i > best.length) best = {i, j - i};
        i = j + 1;
    }
    return best;
}

}  // namespace

std::string to_string(const Gid& gid) {
    char text[48];
    if (gid.is_v4()) {
        std::snprintf(text, sizeof text, "%u.%u.%u.%u", gid.raw[12], gid.raw[13], gid.raw[14],
                      gid.raw[15]);
        return text;
    }
    std::array<unsigned, 8> groups{};
    for (std::size_t i = 0; i < 8; ++i) groups[i] = gid.raw[2 * i] * 256U + gid.raw[2 * i + 1];
    const ZeroRun zeros = longest_zero_run(groups);
    std::string out;
    for (int i = 0; i < 8; ++i) {
        if (i == zeros.start) {
            out += "::";
            i += zeros.length - 1;
            continue;
        }
        if (!out.empty() && out.back() != ':') out += ':';
        std::snprintf(text, sizeof text, "%x", groups[static_cast<std::size_t>(i)]);
        out += text;
    }
    return out;
}

}  // namespace feroce
