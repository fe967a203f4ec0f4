#include "lint/reporter.hpp"

namespace feroce::lint {

void Reporter::found(const Finding& finding) {
    if (told_.size() >= kReportsMax) return;
    if (!told_.emplace(finding.kind, finding.place).second) return;
    tell_(finding);
    if (told_.size() < kReportsMax) return;
    Finding last;
    last.kind = finding.kind;
    last.sentence = "these were " + std::to_string(kReportsMax) + " reports; no more are shown";
    tell_(last);
}

}  // namespace feroce::lint
