"""From images to Output: backbone, phi, psi."""

from bayesdg.models.network import Features, Network, Output, build_network

__all__ = ["Features", "Network", "Output", "build_network"]
