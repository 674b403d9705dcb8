"""Joint modulo scheduling and warp-group assignment with z3. Import from `twill.solver.solve`."""
