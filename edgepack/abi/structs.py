"""The structs of ``edgepack/runtime.h`` as ctypes sees them. A wheel has this file as one of its modules.

Only the functions behind the descriptor are called: the header's inline functions are not in a library.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c

__all__ = [
    "Api",
    "Buffer",
    "ConstBuffer",
    "Descriptor",
    "Model",
    "Options",
    "SessionHandle",
    "Tensor",
    "backend_of",
]


class Tensor(c.Structure):
    """``ep_tensor``."""

    _fields_ = (
        ("name", c.c_char_p),
        ("shape", c.POINTER(c.c_int64)),
        ("reserved", c.c_void_p),
        ("nbytes", c.c_uint64),
        ("dtype", c.c_uint32),
        ("rank", c.c_uint32),
    )


class ConstBuffer(c.Structure):
    """``ep_const_buffer``."""

    _fields_ = (("data", c.c_void_p), ("nbytes", c.c_size_t))


class Buffer(c.Structure):
    """``ep_buffer``."""

    _fields_ = (("data", c.c_void_p), ("nbytes", c.c_size_t))


class Options(c.Structure):
    """``ep_options``."""

    _fields_ = (
        ("struct_size", c.c_size_t),
        ("threads", c.c_uint32),
        ("schedule", c.c_uint32),
        ("caller_threads", c.c_uint32),
        ("reserved", c.c_uint32),
        ("memory", c.c_void_p),
        ("memory_bytes", c.c_size_t),
        ("allocator", c.c_void_p),
    )


class Model(c.Structure):
    """``ep_model``."""

    _fields_ = (
        ("descriptor", c.c_void_p),
        ("params", c.c_void_p),
        ("image", c.c_void_p),
        ("image_bytes", c.c_size_t),
        ("mapping", c.c_void_p),
        ("reserved", c.c_void_p * 3),
    )


SessionHandle = c.c_void_p

_STATUS = c.c_int32


class Api(c.Structure):
    """``ep_api``: the library's functions.

    ``model_backend`` is only there if ``struct_size`` says so, and null in a library for the CPU alone.
    """

    _fields_ = (
        ("struct_size", c.c_uint32),
        ("reserved", c.c_uint32),
        ("model_open", c.CFUNCTYPE(_STATUS, c.c_void_p, c.c_char_p, c.POINTER(Model))),
        ("model_open_memory", c.CFUNCTYPE(_STATUS, c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(Model))),
        ("model_check_params", c.CFUNCTYPE(_STATUS, c.POINTER(Model))),
        ("model_close", c.CFUNCTYPE(None, c.POINTER(Model))),
        ("missing_features", c.CFUNCTYPE(c.c_size_t, c.c_void_p, c.c_char_p, c.c_size_t)),
        ("session_bytes", c.CFUNCTYPE(_STATUS, c.POINTER(Model), c.POINTER(Options), c.POINTER(c.c_size_t))),
        (
            "session_create",
            c.CFUNCTYPE(_STATUS, c.POINTER(Model), c.POINTER(Options), c.POINTER(SessionHandle)),
        ),
        (
            "session_run",
            # The buffers are addresses of arrays of ConstBuffer and of Buffer: ctypes converts them sooner.
            c.CFUNCTYPE(_STATUS, SessionHandle, c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t),
        ),
        ("session_begin", c.c_void_p),
        ("session_work", c.c_void_p),
        ("session_profile", c.c_void_p),
        ("session_destroy", c.CFUNCTYPE(None, SessionHandle)),
        ("model_backend", c.CFUNCTYPE(_STATUS, c.POINTER(Model), c.c_char_p, c.c_size_t)),
    )


class Descriptor(c.Structure):
    """``ep_descriptor``, up to the fields that are used from here."""

    _fields_ = (
        ("magic", c.c_uint64),
        ("abi_version", c.c_uint32),
        ("struct_size", c.c_uint32),
        ("name", c.c_char_p),
        ("edgepack_version", c.c_char_p),
        ("inputs", c.POINTER(Tensor)),
        ("outputs", c.POINTER(Tensor)),
        ("input_count", c.c_uint32),
        ("output_count", c.c_uint32),
        ("arena_bytes", c.c_uint64),
        ("scratch_bytes", c.c_uint64),
        ("params_bytes", c.c_uint64),
        ("params_id", c.c_ubyte * 32),
        ("alignment", c.c_uint32),
        ("flags", c.c_uint32),
        ("arch", c.c_uint32),
        ("default_threads", c.c_uint32),
        ("cpu_features", c.c_uint64),
        ("cpu_feature_names", c.c_char_p),
        ("embedded_params", c.c_void_p),
        ("embedded_bytes", c.c_uint64),
        ("step_tasks", c.POINTER(c.c_int32)),
        ("step_count", c.c_uint32),
        ("scratch_threads", c.c_uint32),
        ("step_scratch", c.POINTER(c.c_uint64)),
        ("run_step", c.c_void_p),
        ("api", c.POINTER(Api)),
    )


def backend_of(api: Api, model: Model) -> str:
    """What an opened model runs on, as ``ep_model_backend`` says it: ``cpu``; a GPU and its name; or ``cpu``
    and, in brackets, why it is not the GPU."""
    if api.struct_size <= Api.model_backend.offset or not api.model_backend:
        return "cpu"
    text = c.create_string_buffer(512)
    api.model_backend(c.byref(model), text, len(text))
    return text.value.decode("utf-8", "replace")
