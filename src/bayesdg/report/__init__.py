"""Pictures of what runs leave behind: figures, feature maps, one HTML page."""
