"""The AAR's classes, for Java and for Kotlin: the model's, what a run gives, and Kotlin's constants.

They are written here, straight code over three native methods (``templates/formats/aar/jni.c.j2``). Java
sees a class with methods and constants; Kotlin, by its metadata, one of its own: arguments with names,
properties, a companion object with the constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgepack.formats.class_file import (
    ABSENT,
    FINAL,
    NATIVE,
    PRIVATE,
    PUBLIC,
    STATIC,
    SYNCHRONIZED,
    ClassFile,
    Code,
)
from edgepack.formats.kotlin_metadata import Function, KotlinClass, getter

__all__ = ["jvm_classes"]

#: A tensor: ``identifier``, ``elements``, ``descriptor`` of an element, ``kotlin``'s name of it.
Tensor = Mapping[str, str]

_NOT_NULL = "Lorg/jetbrains/annotations/NotNull;"
_OBJECT = "java/lang/Object"


def jvm_classes(
    class_name: str, library: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[str, bytes]:
    """Path and bytes of each class.

    Args:
        class_name: with its package: ``edgepack.net.Net``.
        library: of the native methods, as ``System.loadLibrary`` has it.
    """
    name = class_name.replace(".", "/")
    classes = {name: _model(name, library, inputs, outputs), f"{name}$Companion": _companion(name)}
    if len(outputs) > 1:
        classes[f"{name}$Outputs"] = _outputs(name, outputs)
    _describe(name, classes, inputs, outputs)
    return {f"{path}.class": one.data() for path, one in classes.items()}


def _arrays(tensors: Sequence[Tensor]) -> str:
    return "".join(f"[{tensor['descriptor']}" for tensor in tensors)


def _model(name: str, library: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> ClassFile:
    """Constructors, ``run`` into arrays of the caller's and into new ones, ``close``, the native methods."""
    tensors = [*inputs, *outputs]
    out = ClassFile(name, ["java/lang/AutoCloseable"])
    for tensor in tensors:
        out.constant(f"{tensor['identifier'].upper()}_ELEMENTS", int(tensor["elements"]))
    companion = f"{name}$Companion"
    out.field(PUBLIC | STATIC | FINAL, "Companion", f"L{companion};")
    out.field(PRIVATE, "handle", "J")
    begin = Code(out, 2, 0).new(companion).call_constructor(companion, "()V")
    begin.put_static("Companion", f"L{companion};").text(library)
    begin.call_static("java/lang/System", "loadLibrary", "(Ljava/lang/String;)V")
    out.method(STATIC, "<clinit>", "()V", begin)
    default = Code(out, 2, 1).load("A", 0).zero("I").call_constructor(name, "(I)V")
    out.method(PUBLIC, "<init>", "()V", default)
    made = Code(out, 3, 2).load("A", 0).call_constructor(_OBJECT, "()V")
    made.load("A", 0).load("I", 1).call_static(name, "create", "(I)J").put_field("handle", "J")
    out.method(PUBLIC, "<init>", "(I)V", made, parameters=[("threads", ABSENT)])
    run = Code(out, 2 + len(tensors), 1 + len(tensors)).load("A", 0).get_field("handle", "J")
    for index in range(len(tensors)):
        run.load("A", 1 + index)
    run.call_static(name, "compute", f"(J{_arrays(tensors)})V")
    parameters = [(tensor["identifier"], _NOT_NULL) for tensor in tensors]
    out.method(PUBLIC | SYNCHRONIZED, "run", f"({_arrays(tensors)})V", run, parameters=parameters)
    _run_into_new(out, inputs, outputs)
    close = Code(out, 3, 1).load("A", 0).get_field("handle", "J").call_static(name, "destroy", "(J)V")
    close.load("A", 0).zero("J").put_field("handle", "J")
    out.method(PUBLIC | SYNCHRONIZED, "close", "()V", close)
    natives = (("create", "(I)J"), ("compute", f"(J{_arrays(tensors)})V"), ("destroy", "(J)V"))
    for method, descriptor in natives:
        out.method(PRIVATE | STATIC | NATIVE, method, descriptor)
    return out


def _run_into_new(out: ClassFile, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """``run`` of the inputs alone: gives the array of the one output, or an object with those of all."""
    first, count = 1 + len(inputs), len(inputs) + len(outputs)
    code = Code(out, 2 + count, 1 + count)
    for index, tensor in enumerate(outputs):
        code.new_array(tensor["descriptor"], int(tensor["elements"]), first + index)
    code.load("A", 0)
    for index in range(count):
        code.load("A", 1 + index)
    code.call("run", f"({_arrays([*inputs, *outputs])})V")
    returns = _arrays(outputs)
    if len(outputs) > 1:
        kind = f"{out.name}$Outputs"
        returns = f"L{kind};"
        code.new(kind)
        for index in range(len(outputs)):
            code.load("A", first + index)
        code.call_constructor(kind, f"({_arrays(outputs)})V")
    else:
        code.load("A", first)
    parameters = [(tensor["identifier"], _NOT_NULL) for tensor in inputs]
    out.method(PUBLIC, "run", f"({_arrays(inputs)}){returns}", code, parameters=parameters)


def _companion(name: str) -> ClassFile:
    out = ClassFile(f"{name}$Companion")
    out.method(0, "<init>", "()V", Code(out, 1, 1).load("A", 0).call_constructor(_OBJECT, "()V"))
    return out


def _outputs(name: str, outputs: Sequence[Tensor]) -> ClassFile:
    """Arrays with a getter for each."""
    out = ClassFile(f"{name}$Outputs")
    code = Code(out, 2, 1 + len(outputs)).load("A", 0).call_constructor(_OBJECT, "()V")
    for index, tensor in enumerate(outputs):
        field, kind = tensor["identifier"], f"[{tensor['descriptor']}"
        out.field(PRIVATE | FINAL, field, kind)
        code.load("A", 0).load("A", 1 + index).put_field(field, kind)
        out.method(PUBLIC, getter(field), f"(){kind}", Code(out, 1, 1).load("A", 0).get_field(field, kind))
    out.method(0, "<init>", f"({_arrays(outputs)})V", code)
    return out


def _describe(
    name: str, classes: Mapping[str, ClassFile], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> None:
    """Adds what Java and Kotlin read of nested classes, and Kotlin's metadata."""
    nested = [path for path in classes if "$" in path]
    for one in classes.values():
        for path in nested:
            one.inner_class(path)
    taken, given = (
        [(tensor["identifier"], f"kotlin/{tensor['kotlin']}Array") for tensor in tensors]
        for tensors in (inputs, outputs)
    )
    functions = [
        Function("<init>", [("threads", "kotlin/Int")]),
        Function("<init>"),
        Function("run", [*taken, *given]),
        Function("run", taken, f"{name}.Outputs" if len(given) > 1 else given[0][1]),
        Function("close"),
    ]
    short = [path.partition("$")[2] for path in nested]
    KotlinClass(name, functions, parent="java/lang/AutoCloseable", nested=short).annotate(classes[name])
    constants = [(f"{identifier.upper()}_ELEMENTS", "kotlin/Int") for identifier, _ in (*taken, *given)]
    companion = KotlinClass(f"{name}.Companion", properties=constants, companion=True)
    companion.annotate(classes[f"{name}$Companion"])
    if len(given) > 1:
        KotlinClass(f"{name}.Outputs", properties=given).annotate(classes[f"{name}$Outputs"])
