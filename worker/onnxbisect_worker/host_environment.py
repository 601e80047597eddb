"""What a host's process gets of this process's environment: what compilers need, and no secret of the service."""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase

#: Names and patterns. Variables that a TOML file names in `inherit_env` come too, and those of `compiler_env`.
_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_*", "XDG_*_HOME", "XDG_RUNTIME_DIR"),
    # toolchains: where they are kept, what vendors' scripts set, licences, accelerators, the docker daemon
    *("ONNXBISECT_CACHE_DIR", "TPUC_ROOT", "PROJECT_ROOT", "LM_LICENSE_FILE", "*_LICENSE_FILE"),
    *("CUDA_*", "NVIDIA_*", "OMP_NUM_THREADS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
)


def host_environment(folder: str, inherit: tuple[str, ...] = ()) -> Mapping[str, str]:
    """The whole environment of a host whose temporary files go into the folder."""
    passed = (*_PASSED, *inherit)
    found = {name: os.environ[name] for name in os.environ if any(fnmatchcase(name, wanted) for wanted in passed)}
    return {**found, "TMPDIR": folder, "ORT_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}
