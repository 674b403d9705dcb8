"""Emission for Blackwell: what a WarpProgram of the attention forward loop looks like as a CuTe DSL kernel. No GPU has run one yet."""
