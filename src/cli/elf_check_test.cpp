#include "cli/elf_check.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

// An ELF file made by hand: only what the check looks at.
class Sample {
public:
    Sample() : folder_(fs::temp_directory_path() / ("elf_check." + std::to_string(::getpid()))) {
        fs::create_directories(folder_);
        std::memcpy(header_.e_ident, ELFMAG, SELFMAG);
        header_.e_ident[EI_CLASS] = ELFCLASS64;
        header_.e_phoff = sizeof header_;
    }
    ~Sample() { fs::remove_all(folder_); }

    void dynamic(std::vector<Elf64_Dyn> entries, const std::string& text) {
        segments_ = {segment(PT_INTERP), segment(PT_LOAD), segment(PT_DYNAMIC)};
        const std::uint64_t start = sizeof header_ + segments_.size() * sizeof(Elf64_Phdr);
        entries.push_back({DT_STRTAB, {.d_ptr = kBase + start}});
        entries.push_back({DT_NULL, {}});
        segments_[1].p_vaddr = kBase;
        segments_[1].p_filesz = 1 << 16;
        segments_[2].p_offset = start + text.size() + 1;
        segments_[2].p_filesz = entries.size() * sizeof(Elf64_Dyn);
        tail_.assign(text.c_str(), text.size() + 1);
        tail_.append(reinterpret_cast<const char*>(entries.data()), segments_[2].p_filesz);
    }
    std::string write(std::size_t limit = ~std::size_t{0}) {
        header_.e_phnum = static_cast<std::uint16_t>(segments_.size());
        std::string bytes(reinterpret_cast<const char*>(&header_), sizeof header_);
        for (const Elf64_Phdr& s : segments_)
            bytes.append(reinterpret_cast<const char*>(&s), sizeof s);
        bytes += tail_;
        const fs::path path = folder_ / "program";
        std::ofstream(path, std::ios::binary) << bytes.substr(0, limit);
        return path.string();
    }
    std::string library(const std::string& name) {
        fs::create_directories(folder_ / name);
        std::ofstream(folder_ / name / "libibverbs.so.1") << "";
        return (folder_ / name).string();
    }
    Elf64_Ehdr& header() { return header_; }

private:
    static constexpr std::uint64_t kBase = 0x40'0000;
    static Elf64_Phdr segment(std::uint32_t type) {
        Elf64_Phdr out{};
        out.p_type = type;
        return out;
    }
    fs::path folder_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Phdr> segments_;
    std::string tail_;
};

TEST(ElfCheck, OrdinaryProgramsAndScriptsAreFine) {
    EXPECT_FALSE(why_not_ours("/proc/self/exe", "/nowhere"));
    EXPECT_FALSE(why_not_ours("/etc/passwd", "/nowhere"));
    EXPECT_FALSE(why_not_ours("/does/not/exist", "/nowhere"));
}

TEST(ElfCheck, StaticProgramsAreNamed) {
    Sample sample;
    EXPECT_EQ(why_not_ours(sample.write(), "/nowhere"), "is statically linked");
    sample.header().e_ident[EI_CLASS] = ELFCLASS32;
    EXPECT_EQ(why_not_ours(sample.write(), "/nowhere"), "is not a 64-bit program");
}

TEST(ElfCheck, RpathWithAnotherLibraryIsNamed) {
    Sample sample;
    const std::string other = sample.library("other");
    const std::string ours = sample.library("ours");
    sample.dynamic({{DT_RPATH, {.d_val = 0}}}, "/nowhere:$ORIGIN/other:" + ours);
    const auto why = why_not_ours(sample.write(), ours);
    ASSERT_TRUE(why);
    EXPECT_NE(why->find("/other (RPATH)"), std::string::npos) << *why;
    EXPECT_FALSE(why_not_ours(sample.write(), other)) << "the first is ours";
}

TEST(ElfCheck, RunpathGoesAfterTheEnvironment) {
    Sample sample;
    const std::string other = sample.library("other");
    sample.dynamic({{DT_RUNPATH, {.d_val = 0}}, {DT_RPATH, {.d_val = 0}}}, other);
    EXPECT_FALSE(why_not_ours(sample.write(), "/nowhere"));
}

TEST(ElfCheck, CutFilesDoNotHurt) {
    Sample sample;
    sample.dynamic({{DT_RPATH, {.d_val = 1 << 30}}}, "/x");
    for (std::size_t size = 0; size < 400; ++size)
        (void)why_not_ours(sample.write(size), "/nowhere");
    EXPECT_FALSE(why_not_ours(sample.write(), "/nowhere"));
}

TEST(ElfCheck, FindsProgramsAsAShellDoes) {
    EXPECT_EQ(find_program("./x"), "./x");
    EXPECT_NE(find_program("sh"), "");
    EXPECT_EQ(find_program("no such program"), "");
}

}  // namespace
}  // namespace feroce::cli
