"""How long a kernel will take, predicted from its TIR: how often each of its instructions is executed, which
is counted by walking its loops, and what that takes on a CPU."""
