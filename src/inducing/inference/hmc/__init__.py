"""Hamiltonian Monte Carlo."""

from inducing.inference.hmc.sampler import HMCSamples, hmc

__all__ = ["HMCSamples", "hmc"]
