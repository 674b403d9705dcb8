"""Emission for Hopper: what a WarpProgram of the attention backward loop looks like as a CuTe DSL kernel."""
