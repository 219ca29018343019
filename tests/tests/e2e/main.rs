//! End-to-end tests: the built programs, over real FIFOs.
