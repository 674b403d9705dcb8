"""From a WarpProgram to a kernel: `twill.emit.emitter.emit` prints a readable CuTe DSL file. Needs no GPU and no CuTe DSL itself.

Nothing is imported here: emitted kernels import the tile operations below, and need nothing else of twill at run time.
"""
