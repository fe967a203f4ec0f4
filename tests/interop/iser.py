"""iSER with the kernel as the other side: its initiator (ib_iser, by open-iscsi) logs in to tgt on
Feroce, and libiscsi and qemu-img on Feroce to its target (LIO's ib_isert). Data is written by one
side, read by both and compared."""
import os
import pathlib
import shutil
import sys
import tempfile

import wire
from lab import ADDRESS, HERE, TAP, Failure

sys.path.insert(0, str(HERE.parent / "iser"))
import copying  # noqa: E402  (found by the path above)
import target as tgt  # noqa: E402
from place import Failure as ProgramFailure  # noqa: E402
from place import Place  # noqa: E402

FAMILIES = ("IPv4", "IPv6")
IMAGE_BYTES = 4 << 20
DISK_BYTES = 16 << 20
GUEST_SECONDS = 180
LIO_PORT = 3260
LIO_NAME = tgt.NAME + "lio"

# The guest has no udev, so the disk is found by what the kernel says of it. `direct` goes past the
# page cache: what is read is what came over the wire.
LOGIN_AND_COPY = """
set -e
modprobe -a ib_iser sd_mod
mkdir -p /etc/iscsi /run/lock/iscsi
# iscsid obeys a user called root only.
echo root:x:0:0:root:/:/bin/sh >/etc/passwd
echo InitiatorName={name}guest >/etc/iscsi/initiatorname.iscsi
touch /etc/iscsi/iscsid.conf
pidof iscsid >/dev/null || iscsid
node="iscsiadm -m node -T {name}iser -p {portal},1 -I iser"
$node -o new
$node --login
trap '$node --logout' EXIT
for i in $(seq 300); do
    set -- /sys/class/scsi_disk/*/device/block/*
    [ ! -e "$1" ] || break
    sleep 0.1
done
disk=/dev/${{1##*/}}
dd if=/share/image of=$disk bs=256k oflag=direct
dd if=$disk of=/tmp/back bs=64k count={blocks} iflag=direct
cmp /share/image /tmp/back
for n in 1 2 3 4 5; do dd if=$disk bs=4k count=1 skip=$n iflag=direct 2>/dev/null; done >/tmp/some
dd if=/share/image bs=4k count=5 skip=1 2>/dev/null | cmp - /tmp/some
"""

# A RAM disk of the guest's kernel behind LIO, for whoever asks. Immediate data is off, since over
# iSER libiscsi 1.19 announces it and does not send it.
OFFER = """
set -e
[ ! -e /sys/kernel/config/target/iscsi/{name} ] || exit 0
[ -b /dev/ram0 ] || modprobe brd rd_nr=1 rd_size={kib}
modprobe -a target_core_iblock iscsi_target_mod ib_isert
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/target
mkdir -p core/iblock_0/disk iscsi/{name}/tpgt_1/lun/lun_0
echo udev_path=/dev/ram0 >core/iblock_0/disk/control
echo 1 >core/iblock_0/disk/enable
cd iscsi/{name}/tpgt_1
ln -s /sys/kernel/config/target/core/iblock_0/disk lun/lun_0/disk
echo 0 >attrib/authentication
echo 1 >attrib/generate_node_acls
echo 0 >attrib/demo_mode_write_protect
echo No >param/ImmediateData
echo Yes >param/InitialR2T
echo 1 >enable
for portal in {portals}; do
    mkdir np/$portal
    echo 1 >np/$portal/iser
done
"""


def portal(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def check_equal(image, disk):
    with open(disk, "rb") as f:
        if f.read(IMAGE_BYTES) != image.read_bytes():
            raise Failure("the disk does not hold what was written to it over iSER")


def guest_to_tgt(lab, image, family):
    """The kernel's initiator, tgt's target on Feroce."""
    address = ADDRESS["feroce"][family]
    place = Place(lab.vm.environment, [*lab.vm.base, "ns"])
    with tempfile.TemporaryDirectory() as name:
        disk = pathlib.Path(name) / "disk"
        disk.touch()
        os.truncate(disk, DISK_BYTES)
        with tgt.running(place, name, address, disk) as target:
            lab.vm.on_guest(LOGIN_AND_COPY.format(name=tgt.NAME, blocks=IMAGE_BYTES >> 16,
                                                  portal=portal(address, target.port)),
                            GUEST_SECONDS)
            check_equal(image, disk)


def offer_disk(lab):
    portals = [portal(address, LIO_PORT) for address in ADDRESS["rxe"].values()]
    lab.vm.on_guest(OFFER.format(name=LIO_NAME, portals=" ".join(portals), kib=DISK_BYTES >> 10),
                    GUEST_SECONDS)


def libiscsi_to_guest(lab, image, family):
    """libiscsi on Feroce, the kernel's target. `image` differs from what the disk holds."""
    place = Place({**lab.vm.environment, **tgt.LIBISCSI_SETTINGS}, [*lab.vm.base, "ns"])
    url = f"iser://{portal(ADDRESS['rxe'][family], LIO_PORT)}/{LIO_NAME}/0"
    answer = place.check("iscsi-inq", url)
    if "LIO-ORG" not in answer:
        raise Failure(f"this is not the kernel's target:\n{answer}")
    disk = tgt.image_options("iser", ADDRESS["rxe"][family], LIO_PORT, LIO_NAME, 0)
    copying.write(place, image, disk)
    copying.compare(place, image, disk)
    lab.vm.on_guest(f"dd if=/dev/ram0 bs=64k count={IMAGE_BYTES >> 16} iflag=direct 2>/dev/null |"
                    "cmp -s - /share/image")


def attempt(lab, image, capture, check, family):
    """Runs a check with the wire watched: the report of that, and what was wrong."""
    image.write_bytes(os.urandom(IMAGE_BYTES))
    problems = []
    try:
        with wire.Capture(lab.vm.base, TAP, capture):
            check(lab, image, family)
    except (Failure, ProgramFailure) as failure:
        problems.append(str(failure))
        shutil.copy(capture, capture.with_suffix(".failed.pcapng"))
    report = wire.read(capture)
    return report, problems + report.problems(is_one_way=False)


def run(lab, table):
    """Both directions, both families."""
    image = lab.vm.share / "image"
    offer_disk(lab)
    for client, what, check in (("rxe", "iSER: ib_iser to tgt", guest_to_tgt),
                                ("feroce", "iSER: libiscsi to LIO", libiscsi_to_guest)):
        for family in FAMILIES:
            capture = lab.work / "capture" / f"iser-{client}-client-{family}.pcapng"
            report, problems = attempt(lab, image, capture, check, family)
            note = ""
            if problems and report.longest_silence()[1] > wire.STALL_SECONDS:
                table.again += 1
                note = " at the second try: somebody was silent at the first"
                report, problems = attempt(lab, image, capture, check, family)
            print("FAIL" if problems else "ok  ", what, family, report, *problems, flush=True)
            table.add(what, client, family, report, problems, note)
