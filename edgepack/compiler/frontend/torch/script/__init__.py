"""Reads files of TorchScript of others by lists, without PyTorch: :func:`.archive.check_script`.

archive.py      the archive, and all of it
source.py, statements.py, expressions.py, types.py: the code, by the forms of PyTorch's printer
operators.py    what it may call (operators.txt, which tools/write_script_operators.py writes)
pickles.py      a reader of what torch.jit.save pickles, pickle_writer.py writes it anew
values.py       whether that is what the code says
loading.py      PyTorch reads what was accepted
graph.py        the graphs that it made of it, looked through before they run
"""
