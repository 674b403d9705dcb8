"""Emission for Hopper: what a WarpProgram of the attention forward loop looks like as a CuTe DSL kernel."""
