#!/usr/bin/env bash
# Devices: one for each network interface; no RDMA hardware, no kernel module, no root
source "${BASH_SOURCE[0]%/*}/common.sh"

"$FEROCE" run -- ibv_devices
