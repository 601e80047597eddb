"""What a model process gets of the worker's environment: what compilers need, and no secret of the service."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

#: Names and patterns. Variables that a backend's TOML file passes on come too, and those of `Settings.compiler_env`.
_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_*", "XDG_*_HOME", "XDG_RUNTIME_DIR"),
    # what vendors' scripts set, licences, accelerators, the docker daemon
    *("TPUC_ROOT", "PROJECT_ROOT", "*_LICENSE_FILE", "CUDA_*", "NVIDIA_*", "OMP_NUM_THREADS"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
)
_OURS = "ONNXBISECT_"
#: Where toolchains are kept: of our own variables, the one that is no setting of the service.
_CACHE = "ONNXBISECT_CACHE_DIR"


def host_environment(folder: Path, inherit: Sequence[str] = ()) -> dict[str, str]:
    """The whole environment of one whose temporary files go into the folder. `inherit` adds variables by name."""

    def passes(name: str) -> bool:
        if name.startswith(_OURS):
            return name == _CACHE
        return name in inherit or any(fnmatchcase(name, pattern) for pattern in _PASSED)

    found = {name: value for name, value in os.environ.items() if passes(name)}
    return {**found, "TMPDIR": str(folder), "ORT_DISABLE_TELEMETRY": "1"}
