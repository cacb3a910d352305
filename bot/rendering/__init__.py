"""One pure function per surface that turns the neutral card into what the surface shows."""
