-- Wireshark and tshark learn to read RTRS (sessions over several paths) and RNBD (disks over them):
--     tshark -X lua_script:feroce_rtrs.lua -r FILE -Y rtrs
-- A postdissector: it reads what Wireshark's RoCE dissector leaves as payload. Connections are
-- known by the private data of their CM messages; where a capture begins too late for that, by what
-- the messages look like (preference "guess"). Messages of several packets are named at the last.

local rtrs = Proto("rtrs", "RDMA Transport (RTRS)")
local rnbd = Proto("rnbd", "RDMA Network Block Device (RNBD)")

rtrs.prefs.guess = Pref.bool("Guess connections", true,
    "Recognise RTRS by its messages where the capture lacks the connection's beginning")

local f = {
    message = ProtoField.string("rtrs.message", "Message"),
    part = ProtoField.string("rtrs.part", "Part of a message"),
    version = ProtoField.string("rtrs.version", "Version"),
    cid = ProtoField.uint16("rtrs.cid", "Connection"),
    cid_num = ProtoField.uint16("rtrs.cid_num", "Connections of the path"),
    recon = ProtoField.uint16("rtrs.recon_cnt", "Connect number"),
    path = ProtoField.bytes("rtrs.path_uuid", "Path UUID"),
    session = ProtoField.bytes("rtrs.session_uuid", "Session UUID"),
    first = ProtoField.bool("rtrs.first_conn", "May create the session"),
    errno = ProtoField.int16("rtrs.errno", "Error"),
    depth = ProtoField.uint16("rtrs.queue_depth", "Queue depth"),
    io_max = ProtoField.uint32("rtrs.max_io_size", "Largest I/O"),
    header_max = ProtoField.uint32("rtrs.max_hdr_size", "Largest header"),
    flags = ProtoField.uint32("rtrs.flags", "Flags", base.HEX),
    name = ProtoField.string("rtrs.session_name", "Session name"),
    descriptors = ProtoField.uint16("rtrs.sg_cnt", "Descriptors"),
    address = ProtoField.uint64("rtrs.address", "Address", base.HEX),
    key = ProtoField.uint32("rtrs.key", "Key", base.HEX),
    length = ProtoField.uint32("rtrs.length", "Length"),
    chunk = ProtoField.uint32("rtrs.chunk", "Chunk"),
    offset = ProtoField.uint32("rtrs.offset", "Offset of the header"),
    user_length = ProtoField.uint16("rtrs.usr_len", "User message length"),
    sequence = ProtoField.uint64("rtrs.sequence", "Sequence number"),
    data_length = ProtoField.uint32("rtrs.data_len", "Data length"),
}
rtrs.fields = f

local b = {
    message = ProtoField.string("rnbd.message", "Message"),
    version = ProtoField.uint8("rnbd.version", "Version"),
    access = ProtoField.uint8("rnbd.access_mode", "Access", base.DEC,
        { [0] = "read only", [1] = "read and write", [2] = "migration" }),
    disk = ProtoField.string("rnbd.dev_name", "Disk"),
    device = ProtoField.uint32("rnbd.device_id", "Device"),
    sectors = ProtoField.uint64("rnbd.nsectors", "Sectors"),
    block = ProtoField.uint16("rnbd.logical_block_size", "Logical block size"),
    cache = ProtoField.uint8("rnbd.cache_policy", "Cache policy", base.HEX),
    sector = ProtoField.uint64("rnbd.sector", "Sector"),
    operation = ProtoField.string("rnbd.op", "Operation"),
    size = ProtoField.uint32("rnbd.bi_size", "Bytes"),
    priority = ProtoField.uint16("rnbd.prio", "Priority"),
}
rnbd.fields = b

local udp_payload = Field.new("udp.payload")
local udp_port = Field.new("udp.dstport")
local addresses = { src = { Field.new("ip.src"), Field.new("ipv6.src") },
                    dst = { Field.new("ip.dst"), Field.new("ipv6.dst") } }

local kMagic = 0x1bbd
local kMajor = 2
local kFeroce = 0x4645524f  -- "FERO": the extension of Feroce is spoken.
local kDescriptorsMax = 16
local kDefaultDepth = 512  -- Of the Linux server; where the capture does not say.
local kMessageMax = 1024 * 1024

-- What was learnt, in the order of the capture. Filled at the first reading of a frame only.
local flows, requests, pairs_seen, offers, frames

function rtrs.init()
    flows = {}       -- "address qpn" of a receiver: what its connection is
    requests = {}    -- "address rkey" of a reader: what its buffer waits for
    pairs_seen = {}  -- "a b" of two addresses that speak RTRS
    offers = {}      -- "address id" of who sent a REQ: the request
    frames = {}      -- frame number: its message; false if it has none
end

local function bits(value, from, count)
    return math.floor(value / 2 ^ from) % 2 ^ count
end

-- Not pinfo's: the CM dissector puts others there.
local function ends_of_frame()
    local ends = {}
    for which, fields in pairs(addresses) do
        local found = fields[1]() or fields[2]()
        if not found then return nil end
        ends[which] = tostring(found.value)
    end
    return ends
end

-- ---- names ---------------------------------------------------------------------------------

local kOps = { [0] = "READ", "WRITE", "FLUSH", "DISCARD", "SECURE_ERASE", "WRITE_ZEROES" }
local kFlags = { { 8, "SYNC" }, { 9, "FUA" }, { 10, "PREFLUSH" }, { 11, "NOUNMAP" } }
local kTypes = { [0] = "SESS_INFO", "SESS_INFO_RSP", "OPEN", "OPEN_RSP", "IO", "CLOSE" }
local kSizes = { [0] = 36, 36, 264, 56, 26, 8 }  -- The least a message of that type has.

local function operation(rw)
    local text = kOps[rw % 256] or ("operation " .. rw % 256)
    for _, flag in ipairs(kFlags) do
        if bits(rw, flag[1], 1) == 1 then text = text .. " " .. flag[2] end
    end
    return text
end

-- ---- RNBD ----------------------------------------------------------------------------------

-- The name of an RNBD message, or nothing if it is none.
local function rnbd_name(range)
    if range:len() < 4 then return nil end
    local type = range(0, 2):le_uint()
    if not kTypes[type] or range:len() < kSizes[type] then return nil end
    if type == 4 then return "IO " .. operation(range(16, 4):le_uint()) end
    return kTypes[type]
end

local function add_rnbd(range, tree)
    local name = rnbd_name(range)
    if not name then return nil end
    local node = tree:add(rnbd, range)
    node:append_text(": " .. name)
    node:add(b.message, range(0, 2), name)
    local type = range(0, 2):le_uint()
    if type == 0 or type == 1 then
        node:add(b.version, range(4, 1))
    elseif type == 2 then
        node:add(b.access, range(4, 1))
        node:add(b.disk, range(6, 255), range(6, 255):stringz())
    elseif type == 3 then
        node:add_le(b.device, range(4, 4))
        node:add_le(b.sectors, range(8, 8))
        node:add_le(b.block, range(38, 2))
        node:add(b.cache, range(45, 1))
    elseif type == 4 then
        node:add_le(b.device, range(4, 4))
        node:add_le(b.sector, range(8, 8))
        node:add(b.operation, range(16, 4), operation(range(16, 4):le_uint()))
        node:add_le(b.size, range(20, 4))
        node:add_le(b.priority, range(24, 2))
    else
        node:add_le(b.device, range(4, 4))
    end
    return name
end

-- ---- RTRS: connections ---------------------------------------------------------------------

local function add_conn_req(range, tree)
    local cid, count = range(6, 2):le_uint(), range(8, 2):le_uint()
    tree:add(f.version, range(4, 2), string.format("%d.%d", range(5, 1):uint(), range(4, 1):uint()))
    tree:add_le(f.cid, range(6, 2))
    tree:add_le(f.cid_num, range(8, 2))
    tree:add_le(f.recon, range(10, 2))
    tree:add(f.path, range(12, 16))
    tree:add(f.session, range(28, 16))
    tree:add(f.first, range(44, 1))
    return string.format("CONN_REQ connection %d of %d", cid, count)
end

local function add_conn_rsp(range, tree)
    local errno = range(4, 2):le_int()
    tree:add(f.version, range(2, 2), string.format("%d.%d", range(3, 1):uint(), range(2, 1):uint()))
    tree:add_le(f.errno, range(4, 2))
    tree:add_le(f.depth, range(6, 2))
    tree:add_le(f.io_max, range(8, 4))
    tree:add_le(f.header_max, range(12, 4))
    tree:add_le(f.flags, range(16, 4))
    if errno ~= 0 then return string.format("CONN_RSP refused with %d", errno) end
    return string.format("CONN_RSP queue depth %d", range(6, 2):le_uint())
end

local function flow_key(address, qpn) return address .. " " .. qpn end
local function pair_key(x, y)
    return x < y and x .. " " .. y or y .. " " .. x
end

local kReq, kRej, kRep = 0x10, 0x12, 0x13

-- A CM message of general services; `range` begins at the MAD.
local function connect_message(range, ends, first_time)
    if range:len() < 256 or range(1, 1):uint() ~= 7 then return nil end
    local kind = range(16, 2):uint()
    local cm = range(24, 232)
    if kind == kReq then
        local private = cm(140 + 36, 56)
        if private(2, 2):le_uint() ~= kMagic then return nil end
        local offer = { qpn = cm(32, 3):uint(), cid = private(6, 2):le_uint() }
        if first_time then offers[flow_key(ends.src, cm(0, 4):uint())] = offer end
        return { range = private, add = add_conn_req }
    end
    if kind ~= kRep and kind ~= kRej then return nil end
    local private = cm(kind == kRep and 36 or 84, 56)
    if private(0, 2):le_uint() ~= kMagic or private(3, 1):uint() ~= kMajor then return nil end
    if kind == kRep and first_time then
        local known = { depth = private(6, 2):le_uint(),
                        extended = private(20, 4):uint() == kFeroce }
        -- The REQ may be missing: another process may have been the one to read it.
        local offer = offers[flow_key(ends.dst, cm(4, 4):uint())]
        local receivers = { flow_key(ends.src, cm(12, 3):uint()),
                            offer and flow_key(ends.dst, offer.qpn) }
        for _, receiver in pairs(receivers) do
            flows[receiver] = { depth = known.depth, extended = known.extended }
        end
        pairs_seen[pair_key(ends.src, ends.dst)] = known
    end
    return { range = private, add = add_conn_rsp }
end

-- ---- RTRS: messages ------------------------------------------------------------------------

local function chunk_bits(depth)
    local count = 0
    while 2 ^ count < depth do count = count + 1 end
    return count
end

-- The header that stands `tail` bytes and its own length before the end, if it makes sense there.
local function header_at(range, tail, length, type, descriptors)
    local at = range:len() - tail - length
    if at < 0 or range(at, 2):le_uint() ~= type then return nil end
    local user = range(at + 2, 2):le_uint()
    if user > at or (type == 3 and range(at + 6, 2):le_uint() ~= descriptors) then return nil end
    return { at = at, type = type, user = user, descriptors = descriptors,
             sequence = tail > 0 and at + length }
end

local function find_header(range, tail)
    for descriptors = 0, kDescriptorsMax do
        -- One is what the kernel takes, and what is met most.
        local count = descriptors == 0 and 1 or descriptors == 1 and 0 or descriptors
        local head = header_at(range, tail, 8 + 16 * count, 3, count)
        if head then return head end
    end
    return header_at(range, tail, 4, 2, 0)
end

-- The header at the end of a request. Between peers of Feroce eight bytes follow it, the request's
-- sequence number; where the connection's beginning is not known, RNBD tells which of both it is.
local function request_header(range, extended)
    if extended ~= nil then return find_header(range, extended and 8 or 0) end
    for _, tail in ipairs({ 0, 8 }) do
        local head = find_header(range, tail)
        local user = head and head.user > 0 and range(head.at - head.user, head.user)
        if user and rnbd_name(user) then return head end
    end
    return nil
end

local function add_request(range, tree, message)
    local head = range and request_header(range, message.extended)
    if not head then return "request that makes no sense" end
    local name = head.type == 2 and "WRITE" or "READ"
    local payload = message.immediate % 2 ^ 28
    local offset_bits = 28 - chunk_bits(message.depth)
    tree:add(f.chunk, math.floor(payload / 2 ^ offset_bits))
    tree:add(f.offset, payload % 2 ^ offset_bits)
    tree:add(f.data_length, payload % 2 ^ offset_bits - head.user)
    tree:add_le(f.user_length, range(head.at + 2, 2))
    if head.type == 3 then
        tree:add_le(f.flags, range(head.at + 4, 2))
        tree:add_le(f.descriptors, range(head.at + 6, 2))
    end
    for i = 0, head.descriptors - 1 do
        tree:add_le(f.address, range(head.at + 8 + 16 * i, 8))
        tree:add_le(f.key, range(head.at + 16 + 16 * i, 4))
        tree:add_le(f.length, range(head.at + 20 + 16 * i, 4))
    end
    if head.sequence then tree:add_le(f.sequence, range(head.sequence, 8)) end
    local user = head.user > 0 and add_rnbd(range(head.at - head.user, head.user), message.root)
    return name .. (user and (", RNBD " .. user) or "")
end

local function add_info_req(range, tree)
    tree:add(f.name, range(2, 255), range(2, 255):stringz())
    return "INFO_REQ " .. range(2, 255):stringz()
end

local function add_info_rsp(range, tree)
    tree:add_le(f.descriptors, range(2, 2))
    return string.format("INFO_RSP %d descriptors", range(2, 2):le_uint())
end

local function add_fence(range, tree)
    tree:add_le(f.recon, range(2, 2))
    tree:add_le(f.flags, range(4, 4))
    tree:add(f.path, range(8, 16))
    return range(0, 2):le_uint() == 0x80 and "FENCE_REQ" or "FENCE_RSP"
end

local function add_refusal(range, tree)
    tree:add(f.data_length, range:len())
    return "REFUSAL"
end

local function add_overdue(range, tree)
    tree:add_le(f.chunk, range(2, 2))
    return string.format("OVERDUE chunk %d", range(2, 2):le_uint())
end

local function add_reply(range, tree, message)
    local name = "READ data"
    if range then tree:add(f.data_length, range:len()) end
    if message.answers == "IO" or not range then return name end
    local reply = add_rnbd(range, message.root)
    return name .. (reply and (", RNBD " .. reply) or "")
end

local function add_response(range, tree, message)
    local payload = message.immediate % 2 ^ 28
    local errno = math.floor(payload / 2 ^ 19)
    tree:add(f.chunk, payload % 2 ^ 19)
    tree:add(f.errno, -errno)
    local name = string.format("RSP chunk %d", payload % 2 ^ 19)
    if message.kind == 2 then name = name .. " after invalidation" end
    if errno > 0 then name = name .. string.format(" error -%d", errno) end
    if range and message.write then  -- A server of Feroce answers a READ at once.
        return name .. " with " .. add_reply(range, tree, message)
    end
    if range and range:len() >= 8 and range(0, 2):le_uint() == 4 then
        tree:add_le(f.chunk, range(2, 2))
        tree:add_le(f.key, range(4, 4))
        name = name .. " with RKEY_RSP"
        range = range:len() > 8 and range(8) or nil
    end
    if range and range:len() > 0 then  -- Between peers of Feroce: a text, or a read's length.
        tree:add(f.data_length, range:len())
        name = name .. (errno > 0 and " with text" or " with length")
    end
    return name
end

local function constant(name)
    return function() return name end
end

-- What ends a message, by its last packet; nothing if RTRS has no such message.
local function classify(packet, range)
    local size = range and range:len() or 0
    if packet.immediate then
        local kind = bits(packet.immediate, 28, 4)
        if kind == 8 or kind == 9 then
            return size == 0 and constant(kind == 8 and "HEARTBEAT" or "HEARTBEAT_ACK") or nil
        end
        if kind == 0 and packet.write then return add_request end
        if kind == 1 or kind == 2 then return add_response end
        return nil
    end
    if packet.invalidates then return size == 0 and constant("INVALIDATE") or nil end
    if packet.write then return add_reply end
    if size == 24 and (range(0, 2):le_uint() == 0x80 or range(0, 2):le_uint() == 0x81) then
        return add_fence
    end
    if size == 8 and range(0, 2):le_uint() == 0x82 then return constant("GOODBYE") end
    if size >= 4 and range(0, 2):le_uint() == 0x83 then return add_refusal end
    if size == 16 and range(0, 2):le_uint() == 0x84 then return add_overdue end
    if size == 272 and range(0, 2):le_uint() == 0 then return add_info_req end
    if size >= 8 and range(0, 2):le_uint() == 1 and size == 8 + 16 * range(2, 2):le_uint() then
        return add_info_rsp
    end
    return nil
end

-- Whether a message is RTRS by its looks alone.
local function looks_like(packet, range)
    if not packet.immediate then return false end
    local kind, size = bits(packet.immediate, 28, 4), range and range:len() or 0
    if kind == 0 then
        local head = packet.write and range and request_header(range, nil)
        local user = head and head.user > 0 and range(head.at - head.user, head.user)
        return user and rnbd_name(user) ~= nil or false
    end
    if kind == 1 or kind == 2 then
        return size == 8 and range(0, 2):le_uint() == 4 and
            range(2, 2):le_uint() == packet.immediate % 2 ^ 19
    end
    return size == 0 and (packet.immediate == 0x80000000 or packet.immediate == 0x90000000)
end

-- ---- packets -------------------------------------------------------------------------------

-- SEND and WRITE of a reliable connection: position, what it is, what follows the BTH.
local kPackets = {
    [0x00] = { "first" }, [0x01] = { "middle" }, [0x02] = { "last" },
    [0x03] = { "last", immediate = true }, [0x04] = { "only" },
    [0x05] = { "only", immediate = true }, [0x06] = { "first", write = true, reth = true },
    [0x07] = { "middle", write = true }, [0x08] = { "last", write = true },
    [0x09] = { "last", write = true, immediate = true },
    [0x0a] = { "only", write = true, reth = true },
    [0x0b] = { "only", write = true, reth = true, immediate = true },
    [0x16] = { "last", invalidates = true }, [0x17] = { "only", invalidates = true },
}

local function parse(range)
    local info = kPackets[range(0, 1):uint()]
    if not info then return nil end
    local packet = { position = info[1], write = info.write, psn = range(9, 3):uint(),
                     qpn = range(5, 3):uint() }
    local at = 12
    if info.reth then
        packet.rkey = range(at + 8, 4):uint()
        at = at + 16
    end
    if info.immediate then packet.immediate = range(at, 4):uint() end
    if info.invalidates then packet.invalidates = range(at, 4):uint() end
    if info.immediate or info.invalidates then at = at + 4 end
    local pad = bits(range(1, 1):uint(), 4, 2)
    local size = range:len() - at - pad - 4
    if size > 0 then packet.payload = range(at, size) end
    return packet
end

-- Puts packets of one message together. Nothing while more are to come, or some are missing.
local function gather(flow, packet)
    if packet.position == "only" then
        return packet.payload and packet.payload:bytes() or ByteArray.new()
    end
    if packet.position == "first" then
        -- Sent again: what came of the message since counts.
        if flow.open and flow.open.first == packet.psn then return nil end
        flow.open = { bytes = ByteArray.new(), first = packet.psn, next = packet.psn,
                      rkey = packet.rkey }
    end
    local open = flow.open
    if not open or open.next ~= packet.psn or open.bytes:len() > kMessageMax then return nil end
    open.next = (packet.psn + 1) % 2 ^ 24
    if packet.payload then open.bytes:append(packet.payload:bytes()) end
    if packet.position ~= "last" then return nil end
    packet.rkey = open.rkey
    flow.open = nil
    return open.bytes
end

local function remember_reader(range, extended, ends)
    local head = request_header(range, extended)
    if not head then return end
    local user = head.user > 0 and rnbd_name(range(head.at - head.user, head.user))
    local waits = user and user:sub(1, 2) == "IO" and "IO" or "reply"
    for i = 0, head.descriptors - 1 do
        requests[flow_key(ends.src, range(head.at + 16 + 16 * i, 4):le_uint())] = waits
    end
end

-- At the first reading of a frame: what message ends with it.
local function learn(packet, ends)
    local key = flow_key(ends.dst, packet.qpn)
    local flow = flows[key]
    if not flow then
        if not rtrs.prefs.guess then return nil end
        local pair = pairs_seen[pair_key(ends.src, ends.dst)]
        flow = pair and { depth = pair.depth, extended = pair.extended, unsure = true } or
            { depth = kDefaultDepth, unsure = true }
        flows[key] = flow
    end
    local bytes = gather(flow, packet)
    if not bytes then return { part = true, flow = flow } end
    local range = bytes:len() > 0 and bytes:tvb("RTRS message"):range() or nil
    local is_pair = pairs_seen[pair_key(ends.src, ends.dst)]
    if flow.unsure and looks_like(packet, range) then
        flow.unsure = false
        pairs_seen[pair_key(ends.src, ends.dst)] = is_pair or { depth = kDefaultDepth }
    elseif flow.unsure and not is_pair then
        return nil
    end
    local add = classify(packet, range)
    if not add then return nil end
    local message = { add = add, bytes = bytes, immediate = packet.immediate, depth = flow.depth,
                      extended = flow.extended, write = packet.write,
                      kind = packet.immediate and bits(packet.immediate, 28, 4) }
    if add == add_request and range then remember_reader(range, flow.extended, ends) end
    if packet.write then message.answers = requests[flow_key(ends.dst, packet.rkey or 0)] end
    return message
end

local function show(message, tree, pinfo)
    local node = tree:add(rtrs)
    if message.part then
        if message.flow.unsure then return end
        node:add(f.part, "more follows")
        return
    end
    message.root = tree
    local range = message.range
    if not range and message.bytes:len() > 0 then
        range = message.bytes:tvb("RTRS message"):range()
    end
    local name = message.add(range, node, message)
    node:append_text(": " .. name)
    node:add(f.message, name)
    pinfo.cols.protocol = name:find("RNBD") and "RNBD" or "RTRS"
    pinfo.cols.info = name
end

function rtrs.dissector(_, pinfo, tree)
    local port, payload = udp_port(), udp_payload()
    if not port or port.value ~= 4791 or not payload or payload.range:len() < 16 then return end
    local range, ends = payload.range, ends_of_frame()
    if not ends then return end
    -- Not pinfo.visited: of two readings, the first may have no fields.
    local number, message = pinfo.number, nil
    local first_time = frames[number] == nil
    if first_time then frames[number] = false end
    if range(0, 1):uint() == 0x64 and range(5, 3):uint() == 1 then
        message = connect_message(range(20), ends, first_time)
    else
        local packet = first_time and parse(range)
        if packet then frames[number] = learn(packet, ends) or false end
        message = frames[number]
    end
    if message then show(message, tree, pinfo) end
end

register_postdissector(rtrs)
