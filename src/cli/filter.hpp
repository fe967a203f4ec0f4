// The words after `dev`, `link`, `res` and `stat`: an optional `show`, an optional object, a device
// and `KEY VALUE` filters, which pick records by what they print.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/devices.hpp"
#include "cli/output.hpp"

namespace feroce::cli {

class Filter {
public:
    // `objects`: what may follow `show`, such as "qp"; `takes_link`: a device is introduced by the
    // word link. Throws UsageError.
    Filter(const std::vector<std::string>& words, const std::vector<std::string>& objects,
           bool takes_link);

    const std::string& object() const { return object_; }
    bool wants_device(const std::string& name) const { return device_.empty() || device_ == name; }
    bool wants(const Json& record) const;

    // Throws UsageError if a device was named that is not there.
    void check_device(const std::vector<DeviceInfo>& devices) const;

private:
    void take_device(const std::string& word);

    std::string object_;
    std::string device_;
    std::map<std::string, std::vector<std::string>> values_;  // By key: any of these.
};

}  // namespace feroce::cli
