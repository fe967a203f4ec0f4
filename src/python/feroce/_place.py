"""Where the files of Feroce are. The wheel carries them; without it, as in a build folder, the
dynamic loader finds the library."""
import os
import pathlib
import sys
import sysconfig

__version__ = "0.1.0"


def folder() -> pathlib.Path:
    """Where the files of Feroce are: bin, lib, share."""
    package = pathlib.Path(__file__).resolve().parent
    carried = package / "files"
    # Else share/feroce/python/feroce of an archive, or an installed one.
    return carried if carried.exists() or len(package.parents) < 4 else package.parents[3]


def libraries() -> pathlib.Path:
    """The folder with libibverbs.so.1 and librdmacm.so.1. In Debian's packages it is in one that
    is named for the machine."""
    above = folder() / "lib"
    named = above / (sysconfig.get_config_var("MULTIARCH") or ".") / "feroce"
    for place in (above / "feroce", named, *sorted(above.glob("*/feroce"))):
        if (place / "libibverbs.so.1").exists():
            return place
    return above / "feroce"


def command(*words: str) -> list[str]:
    """For subprocess: the command with its arguments."""
    return [str(folder() / "bin" / "feroce"), *words]


def main() -> None:
    """Becomes the command."""
    words = command(*sys.argv[1:])
    os.execv(words[0], words)
