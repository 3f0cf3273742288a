"""From images to Output: backbone, phi, psi."""

from bayesdg.models.network import Draws, Features, Network, Output, build_network

__all__ = ["Draws", "Features", "Network", "Output", "build_network"]
