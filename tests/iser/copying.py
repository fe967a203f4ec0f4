"""Copies and comparisons by qemu-img; `disk` is what target.image_options() says."""

SECONDS = 180


def write(place, image, disk):
    place.check("qemu-img", "convert", "-n", "-f", "raw", "--target-image-opts", str(image), disk,
                timeout=SECONDS)


def read(place, disk, image):
    place.check("qemu-img", "convert", "--image-opts", "-O", "raw", disk, str(image),
                timeout=SECONDS)


def compare(place, image, disk):
    """Both must hold the same; where one is longer, zeroes."""
    place.check("qemu-img", "compare", "--image-opts", f"driver=raw,file.filename={image}", disk,
                timeout=SECONDS)
