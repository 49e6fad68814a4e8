"""Reads ``.pt2`` files of others by schema, without PyTorch: :func:`.copying.look_through`.

    forms.py        what a JSON value may be, and a copy of it
    names.py, calls.py, arithmetic.py, integers.py, nested.py, tensors.py: forms of what programs consist of
    program.py      the schema of models/model.json
    payloads.py     where the numbers of weights lie
    pickles.py      example inputs, which torch.save wrote
    said.py         what edgepack's own exporter says
    entries.py      the archive
    copying.py      all of it

What is not known is refused, by its name and place; PyTorch reads a copy of what was looked at.
"""
